//! What the public validator `skills-ref` refuses is a warning here, and nothing else is.
//!
//! The verdicts are those of version 0.1.1. Where `skills-ref` is installed (`pip install skills-ref`) it is asked again;
//! where it is not, that is said loudly, and `FILESECBOX_REQUIRE=skills-ref` makes it a failure.

use std::ffi::OsStr;
use std::io::Write;
use std::process::Command;

use storage::Dir;
use storage::metadata::parse;

/// Its verdict, and whether we warn although it refuses nothing: the specification says more than it checks.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Sound,
    Refused,
    /// Against the specification, and not checked by the validator.
    Unchecked,
}
use Verdict::{Refused, Sound, Unchecked};

/// Fields after `name: dir` and `description: d`, or a whole file where it begins with anything else than a field.
const TABLE: &[(Verdict, &str)] = &[
    (Sound, ""),
    (Refused, "version: 1\n"),
    (Unchecked, "allowed-tools:\n  - Read\n  - Bash\n"),
    (Refused, "allowed-tools: [Read, Bash]\n"),
    (Sound, "allowed-tools: Read Bash\n"),
    (Unchecked, "metadata:\n  a:\n    b: c\n"),
    (Unchecked, "metadata:\n  a:\n    - c\n"),
    (Unchecked, "metadata: x\n"),
    (Refused, "metadata: {a: b}\n"),
    (Refused, "metadata:\n  a: {b: c}\n"),
    (Sound, "metadata:\n  a: b\n"),
    (Sound, "metadata:\n    a: b\n    c: d\n"),
    (Refused, "license: &x MIT\n"),
    (Refused, "license: !!str MIT\n"),
    (Refused, "license: *x\n"),
    (Sound, "license: 100% free [see below]\n"),
    (Sound, "license: '[MIT]'\n"),
    (Unchecked, "license:\n  - MIT\n"),
    (Refused, "compatibility:\n  - linux\n"),
    (Sound, "compatibility: |\n  [x]\n  {y}\n"),
    (Sound, "compatibility: a\n  [x] b\n"),
    (Sound, "# a comment [x]\nlicense: MIT # {y}\n"),
    (Refused, "license: a: b\n"),
    (Refused, "license: a\nlicense: b\n"),
    (Refused, "\u{FEFF}---\nname: dir\ndescription: d\n---\n"),
    (Refused, "\n---\nname: dir\ndescription: d\n---\n"),
    (Refused, "---\nname: dir\ndescription: d\n...\nx\n"),
    (Refused, "---\nName: dir\ndescription: d\n---\n"),
    (Refused, "---\nname: dir\ndescription:\n---\n"),
    (Refused, "---\nname: dir\ndescription:\n  - d\n---\n"),
    (Refused, "---\nname: dir\n---\n"),
    (Refused, "---\ndescription: d\n---\n"),
    (Refused, "---\nname: Dir\ndescription: d\n---\n"),
    (Refused, "---\nname: other\ndescription: d\n---\n"),
    (Refused, "---\nname: dir\ndescription: d\n"),
    (Refused, "# no front matter\n"),
    (Sound, "---  \nname: dir\ndescription: d\n---\t\n"),
    (Sound, "---\r\nname: dir\r\ndescription: d\r\n---\r\n"),
];

fn text(row: &str) -> String {
    if row.is_empty() || row.starts_with(|first: char| first.is_ascii_lowercase()) || row.starts_with("# a") {
        format!("---\nname: dir\ndescription: d\n{row}---\n# Title\n")
    } else {
        row.to_owned()
    }
}

#[test]
fn what_the_public_validator_refuses_is_a_warning_and_what_it_takes_is_none() {
    for (verdict, row) in TABLE {
        let warnings = parse(Some(text(row).as_bytes()), None, "dir").warnings;
        assert_eq!(!warnings.is_empty(), *verdict != Sound, "{row:?}: {warnings:?}");
    }
    let long = |field: &str, chars: usize| {
        let text = format!("---\nname: dir\ndescription: d\n{field}: {}\n---\n", "x".repeat(chars));
        parse(Some(text.as_bytes()), None, "dir").warnings.len()
    };
    assert_eq!((long("compatibility", 500), long("compatibility", 501)), (0, 1));
}

#[test]
#[expect(clippy::print_stderr, reason = "a skip is loud")]
fn the_verdicts_are_those_of_the_public_validator() {
    let place = tempfile::tempdir().unwrap();
    let outer = Dir::ambient_open(place.path()).unwrap();
    for (number, (verdict, row)) in TABLE.iter().enumerate() {
        let above = outer.create_dir(OsStr::new(&number.to_string()), 0o755).unwrap();
        let dir = above.create_dir(OsStr::new("dir"), 0o755).unwrap();
        let mut file = dir.create_file(OsStr::new("SKILL.md"), 0o644).unwrap();
        file.write_all(text(row).as_bytes()).unwrap();
        let path = place.path().join(number.to_string()).join("dir");
        let validate = |program| Command::new(program).arg("validate").arg(&path).output();
        // The package `skills-ref` calls its program so, or `agentskills`.
        match validate("skills-ref").or_else(|_| validate("agentskills")) {
            Ok(output) => assert_eq!(output.status.success(), *verdict != Refused, "{row:?}: {output:?}"),
            Err(_) => {
                let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
                let is_required = required.split(',').any(|word| matches!(word, "skills-ref" | "all"));
                assert!(!is_required, "`skills-ref` is not installed and FILESECBOX_REQUIRE asks for it");
                eprintln!("SKIPPED: `skills-ref` is not installed");
                return;
            }
        }
    }
}
