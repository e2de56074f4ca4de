//! Anchoring as data: `data/anchoring.toml` lists commands with what becomes of them; laws hold over random ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use policy::{Anchors, CheckedCommand, CommandPolicy, Profile, Refusal};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    run: Vec<String>,
    shell: Option<String>,
    becomes: Option<Becomes>,
    refused: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Becomes {
    Line(String),
    Vector(Vec<String>),
}

fn policy() -> CommandPolicy {
    CommandPolicy::new(Profile::Default, &[]).unwrap()
}

fn anchors() -> Anchors {
    Anchors {
        inside: "/data/work/li/助手".to_owned(),
        aliases: vec![
            "/workspace".to_owned(),
            "/data/overlay/li/演示".to_owned(),
            "/data/baseline/演示/".to_owned(),
        ],
        temporary: None,
    }
}

/// The outcome in the words of the table.
fn outcome(result: Result<CheckedCommand, Refusal>) -> Result<Vec<String>, String> {
    match result {
        Ok(CheckedCommand { program, args }) => Ok([vec![program], args].concat()),
        Err(Refusal::CommandNotAllowed { .. }) => Err("command".to_owned()),
        Err(Refusal::Invalid { .. }) => Err("invalid".to_owned()),
        Err(Refusal::PathEscape { rule, .. }) => {
            Err(serde_json::to_value(rule).unwrap().as_str().unwrap().to_owned())
        }
    }
}

fn line(script: &str) -> Vec<String> {
    vec!["bash".to_owned(), "-c".to_owned(), script.to_owned()]
}

#[test]
fn every_case_of_the_table_is_decided_as_it_says() {
    let groups: BTreeMap<String, Vec<Case>> = toml::from_str(include_str!("data/anchoring.toml")).unwrap();
    let policy = policy();
    let mut wrong = Vec::new();
    let mut count = 0;
    for (group, cases) in groups {
        for case in cases {
            count += 1;
            let (result, same) = match &case.shell {
                Some(script) => (policy.check_script(script, &anchors()), line(script)),
                None => (policy.check(&case.run[0], &case.run[1..], &anchors()), case.run.clone()),
            };
            let expected = match (&case.refused, &case.becomes) {
                (Some(rule), _) => Err(rule.clone()),
                (None, Some(Becomes::Line(script))) => Ok(line(script)),
                (None, Some(Becomes::Vector(vector))) => Ok(vector.clone()),
                (None, None) => Ok(same),
            };
            let found = outcome(result);
            if found != expected {
                wrong.push(format!("{group}: {case:?}\n  found {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 150, "the table lost cases: {count}");
}

#[test]
fn a_path_refusal_names_the_argument_and_its_position() {
    let args = ["-n", "a", "/etc/passwd"].map(str::to_owned);
    let message = policy().check("cat", &args, &anchors()).unwrap_err().to_string();
    assert!(
        message.starts_with("argument 3: `/etc/passwd` is an absolute path outside the tree"),
        "{message}"
    );
    let args = ["-c", "ls; cat '/etc/passwd'"].map(str::to_owned);
    let message = policy().check("bash", &args, &anchors()).unwrap_err().to_string();
    assert!(message.starts_with("argument 2: `/etc/passwd`"), "{message}");
    let message = policy().check_script("cat ../x", &anchors()).unwrap_err().to_string();
    assert!(message.starts_with("`../x` has a `..` segment"), "{message}");
}

#[test]
fn no_refusal_tells_where_the_tree_stands() {
    for script in ["cat /etc/passwd", "cat ../x", "cat /dev/sda", "/usr/bin/perl", "echo 'x"] {
        let message = policy().check_script(script, &anchors()).unwrap_err().to_string();
        assert!(!message.contains("/data"), "{message}");
    }
}

#[test]
fn a_tree_whose_name_needs_quotes_is_quoted_as_the_word_was() {
    let anchors = Anchors {
        inside: "/d/my 'tree' $x".to_owned(),
        aliases: vec!["/workspace".to_owned()],
        temporary: None,
    };
    let script = r#"cat /workspace/a "/workspace/b" '/workspace/c'"#;
    let expected = r#"cat /d/my\ \'tree\'\ \$x/a "/d/my 'tree' \$x/b" '/d/my '\''tree'\'' $x/c'"#;
    assert_eq!(policy().check_script(script, &anchors).unwrap().args[1], expected);
}

/// Commands whose operands are files, with arguments that leave the next operand a file.
const FILE_COMMANDS: [&[&str]; 9] = [
    &["cat"],
    &["ls", "-la"],
    &["cp", "a"],
    &["mv", "a"],
    &["rm", "-rf"],
    &["mkdir", "-p"],
    &["grep", "x"],
    &["sed", "-n", "p"],
    &["awk", "{print}"],
];

/// Spells one word for the shell.
fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_arguments_are_decided_without_panic(
        command in 0..17_usize,
        args in prop::collection::vec("\\PC{0,20}|[-/.=@a$`\"'(){}\\\\ \n|&;<>*#c]{0,16}", 0..6),
    ) {
        let policy = policy();
        let command = policy.direct().nth(command).unwrap().to_owned();
        let _decided = policy.check(&command, &args, &anchors());
    }

    #[test]
    fn any_script_is_decided_without_panic(
        script in "([-/.=@a$`\"'(){}\\\\ \n|&;<>*#\\[\\]中]|case|esac| in |<<E\n|\\$\\(|\\$\\{|/workspace){0,60}",
    ) {
        let _decided = policy().check_script(&script, &anchors());
    }

    #[test]
    fn a_plain_operand_outside_the_tree_is_never_taken(
        command in prop::sample::select(&FILE_COMMANDS[..]),
        before in prop::collection::vec("[a-z中]{1,6}(/[a-z]{1,6})?", 0..4),
        outside in prop::sample::select(vec!["/etc/passwd", "../x", "/", "/workspace/../x", "/root/.ssh/id_rsa"]),
    ) {
        let mut words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        words.extend(before);
        words.push(outside.to_owned());
        let refusal = policy().check(&words[0], &words[1..], &anchors());
        prop_assert!(matches!(refusal, Err(Refusal::PathEscape { .. })), "{:?}", words);

        let script = words.iter().map(|word| single_quoted(word)).collect::<Vec<_>>().join(" ");
        prop_assert!(policy().check_script(&script, &anchors()).is_err(), "{}", script);
    }

    #[test]
    fn relative_arguments_pass_unchanged(
        command in prop::sample::select(&FILE_COMMANDS[..]),
        operands in prop::collection::vec("[a-z中.]{1,3}[a-z]{1,6}(/[a-z0-9_ ]{1,6}){0,3}", 1..5),
    ) {
        let args: Vec<String> = command[1..].iter().map(|word| (*word).to_owned()).chain(operands).collect();
        let checked = policy().check(command[0], &args, &anchors()).unwrap();
        prop_assert_eq!(checked.args, args);
    }

    #[test]
    fn a_script_without_a_path_into_the_tree_passes_unchanged_or_not_at_all(
        script in "[-a-z.=@$`\"'(){}\\\\ \n|&;<>*#]{0,60}",
    ) {
        if let Ok(checked) = policy().check_script(&script, &anchors()) {
            prop_assert_eq!(checked.args.last(), Some(&script));
        }
    }

    #[test]
    fn a_path_in_any_quoting_is_rewritten_to_the_same_file(name in "[a-z中 '\"$]{1,8}") {
        let path = format!("/workspace/{name}");
        let checked = policy().check_script(&format!("cat {}", single_quoted(&path)), &anchors()).unwrap();
        let expected = format!("cat {}", single_quoted(&format!("/data/work/li/助手/{name}")));
        prop_assert_eq!(checked.args.last(), Some(&expected));
    }
}
