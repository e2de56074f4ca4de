//! The official conformance suite and the inspector, on a real service.
//!
//! `suite/REVISION.yaml` has the checks of the suite that do not apply to the service, each with why; many need tools of the suite's own
//! server. `tests/mcp_fixture` adds those to the same server, and leaves out what is left of the list.

use std::collections::BTreeSet;

use crate::client::{ON, PATH};
use crate::conformance::{checks, expected, packages, run};
use crate::support::{Entry, Service, digest, skill_zip, zip};

const SKILLS: &str = "/v1/skills/alice/demo";

/// A service with skills, and a file in the workspace.
fn filled() -> Service {
    let service = Service::configured(ON);
    let client = &service.client;
    let head = "---\nname: csv-tools\ndescription: Reads CSV.\nmetadata:\n  version: \"1.0\"\n---\n# CSV\n";
    client.upload(
        SKILLS,
        "baseline",
        &zip(&[Entry::file("tables/SKILL.md", head), Entry::file("tables/deep/er/a.txt", "a")]),
    );
    client.upload(SKILLS, "overlay", &skill_zip("pdf-tools", &[("scripts/fill.py", "print(1)\n")]));
    client.write("/v1/sandbox/alice/demo", "x.txt", "hello\n");
    service
}

/// Has the suite look at a revision: what fails is what the list says.
fn conforms(revision: &str, least: usize) {
    let Some(packages) = packages() else { return };
    let service = filled();
    let url = format!("http://{}{PATH}", service.client.address);
    let (failed, made) = checks(&packages, &url, &["--requirements", revision]);
    assert_eq!(failed, expected("mcp/suite", revision), "what fails, and what is said to");
    assert!(made - failed.len() >= least, "{made} checks, of which {} fail", failed.len());
}

#[test]
fn the_conformance_suite_agrees_with_the_current_revision() {
    conforms("2026-07-28", 100);
}

#[test]
fn the_conformance_suite_agrees_with_the_older_revision() {
    conforms("2025-11-25", 30);
}

#[test]
fn the_conformance_suite_agrees_with_the_skills_extension() {
    let Some(packages) = packages() else { return };
    let service = filled();
    let url = format!("http://{}{PATH}", service.client.address);
    let failing = |scenario: &str| {
        let arguments = ["--scenario", scenario, "--spec-version", "2026-07-28", "--force"];
        checks(&packages, &url, &arguments).0
    };
    for scenario in ["sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory"] {
        assert_eq!(failing(scenario), BTreeSet::new());
    }
    // Names of other scripts are what the format of skills allows, and the suite does not.
    service.client.upload(SKILLS, "baseline", &skill_zip("数据统计", &[]));
    let known = ["sep-2640-entry-uri-matches-frontmatter-name", "sep-2640-name-naming-rules"];
    let known = known.map(|check| format!("sep-2640-skills-enumeration:{check}"));
    assert_eq!(failing("sep-2640-skills-enumeration"), known.into());
}

#[test]
fn the_inspector_finds_no_mistake_in_either_era() {
    let Some(packages) = packages() else { return };
    let service = filled();
    let url = format!("http://{}{PATH}", service.client.address);
    for era in ["modern", "legacy"] {
        let inspect = |arguments: &[&str]| {
            let begin = ["--cli", &url, "--transport", "http", "--protocol-era", era, "--method"];
            let output = run(&packages, "mcp-inspector", &[&begin, arguments].concat());
            let written = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(output.status.success(), "{era} {arguments:?}: {:?}\n{written}", output.status);
            written
        };
        let strict = inspect(&["tools/list", "--strict"]);
        assert!(strict.contains("0 errors"), "{strict}");
        let verified = inspect(&["skills/list", "--verify"]);
        assert!(verified.contains("Verified 2 skills and 4 files"), "{verified}");
        let load = ["--load", "--load-requests", "200", "--load-concurrency", "20"];
        let load = inspect(
            &[&["tools/call", "--tool-name", "Read", "--tool-arg", "path=x.txt"], &load[..]].concat(),
        );
        assert!(load.contains("200"), "{load}");
    }
}

#[test]
fn the_inspector_uses_the_bridge() {
    let Some(packages) = packages() else { return };
    let config =
        format!("{ON}[[tokens]]\nsha256 = \"{}\"\nrole = \"user\"\nuser = \"alice\"\n", digest("secret"));
    let service = Service::configured(&config);
    service.client.with_token("secret").write("/v1/sandbox/alice/demo", "x.txt", "hello\n");
    let server = format!("http://{}", service.client.address);
    for era in ["modern", "legacy"] {
        let variables = ["TOKEN=secret", "USER=alice", "AGENT=demo", &format!("SERVER={server}")];
        let variables = variables.map(|variable| format!("FILESECBOX_{variable}"));
        let mut arguments = vec!["--cli"];
        arguments.extend(variables.iter().flat_map(|variable| ["-e", variable]));
        arguments.extend(["--transport", "stdio", "--protocol-era", era, "--method", "resources/list"]);
        arguments.extend([env!("CARGO_BIN_EXE_filesecbox"), "mcp"]);
        let output = run(&packages, "mcp-inspector", &arguments);
        let written = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && written.contains("workspace:///x.txt"), "{era}: {output:?}");
    }
}
