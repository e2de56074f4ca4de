//! What agents write, in one workspace after another: every line does what it would do elsewhere, at every tier.

use serde_json::json;

use crate::support::{Client, Service, workspace};

const LINES: &str = include_str!("lines.tsv");

struct Line<'a> {
    /// The tier from which on it works.
    tier: &'a str,
    code: i64,
    contains: &'a str,
    line: String,
}

fn lines() -> Vec<Line<'static>> {
    let rows = LINES.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let parsed = rows.map(|row| {
        let mut fields = row.splitn(4, '\t');
        let mut next = || fields.next().unwrap_or_else(|| panic!("{row}"));
        let (tier, code, contains, line) = (next(), next(), next(), next());
        // In one row a here-document has its line ends spelled.
        let line = if line.contains("<<'PY'") { line.replace("\\n", "\n") } else { line.to_owned() };
        Line { tier, code: code.parse().unwrap(), contains, line }
    });
    parsed.collect()
}

/// The tier that the host grants this service.
fn tier(client: &Client) -> String {
    let info = client.get("/v1/info").ok();
    info["data"]["host"]["enforcement"]["tier"].as_str().unwrap().to_owned()
}

fn all_at(service: &Service) {
    let tier = tier(&service.client);
    let tree = workspace("natural", "a");
    let mut wrong = Vec::new();
    for Line { tier: least, code, contains, line } in lines() {
        if least == "n" && tier != "namespaces" {
            continue;
        }
        let run = json!({"shell": line, "timeout_ms": 300_000});
        let answer = service.client.post_json(format!("{tree}/exec"), &run);
        if answer.status != 200 {
            wrong.push(format!("`{line}`: refused with {} {}", answer.status, answer.json()));
            continue;
        }
        let result = &answer.ok()["data"];
        let output = result["output"].as_str().unwrap();
        if result["exit_code"] != code || !output.contains(contains) {
            wrong.push(format!(
                "`{line}`: {} instead of {code}, `{output}`, {}",
                result["exit_code"], result["hint"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{tier}, {} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn two_hundred_lines_do_what_they_would_do_elsewhere() {
    assert!(lines().len() >= 200, "{}", lines().len());
    let service = Service::start();
    all_at(&service);
}

#[test]
fn the_same_lines_do_it_in_a_container_without_privileges() {
    let service = Service::configured("[isolation]\nmaximum = \"landlock\"\n");
    all_at(&service);
}

#[test]
fn a_command_that_a_wall_refuses_is_told_which_and_what_to_do() {
    for (configuration, tier) in [("", ""), ("[isolation]\nmaximum = \"landlock\"\n", "landlock")] {
        let service = Service::configured(configuration);
        let tree = workspace("u", "a");
        let mut cases = vec![
            ("perl -e 1", "`perl` may not run here"),
            ("printf '#!/usr/bin/perl\\n' > p && chmod +x p && ./p", "`perl` may not run here"),
            ("no-such-program", "`no-such-program` is not installed"),
            ("sleep 5", "timeout_ms"),
        ];
        match tier {
            "landlock" => cases.push(("cat /etc/shadow", "`/etc/shadow` is closed")),
            _ => cases.push(("touch /usr/x", "read-only")),
        }
        for (line, advice) in cases {
            let run = json!({"shell": line, "timeout_ms": 1000});
            let result = service.client.post_json(format!("{tree}/exec"), &run).ok();
            let hint = result["data"]["hint"].as_str().unwrap_or_default();
            assert!(hint.contains(advice), "{line}: {result}");
        }
        // Also where a model reads it.
        let told = service
            .client
            .post_json(format!("{tree}/execute?command=bash"), &json!(["-c", "perl -e 1"]))
            .ok();
        assert!(
            told["data"].as_str().unwrap().ends_with(']')
                && told["data"].as_str().unwrap().contains("may not run here"),
            "{told}"
        );
    }
}

#[test]
fn the_setting_has_lines_scanned_as_arguments_are() {
    let service = Service::configured("[commands]\nscan = \"all\"\n");
    let tree = workspace("u", "a");
    for line in ["cat ../x", "cat /etc/os-release", "ls /var"] {
        let refused = service.client.post_json(format!("{tree}/exec"), &json!({"shell": line}));
        assert_eq!(refused.refused(403, "path_escape")["code"], "path_escape", "{line}");
    }
    let service = Service::start();
    let refused =
        service.client.post_json(format!("{tree}/execute?command=cat"), &json!(["/etc/os-release"]));
    refused.refused(403, "path_escape");
}
