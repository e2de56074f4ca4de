//! Headers of skills that are small and stand for much: every request that lists the skills reads them.

use serde_json::json;

use crate::attack::Attack;
use crate::expectation::Finding;
use crate::host::growth;
use crate::scene::{AGENT, Scene};
use crate::zip::{Entry, zip};

const MIB: u64 = 1024 * 1024;
/// By how much the service may grow for all of these listings: the memory of its threads included.
const GROWTH_BYTES_MAX: u64 = 64 * MIB;

pub(crate) const ATTACKS: &[Attack] =
    &[Attack::driven("describing_a_skill_in_yaml_that_multiplies", describing).everywhere().alone()];

/// Headers of at most 16 KiB, each with a name, by what is in them.
fn bombs() -> Vec<(&'static str, String)> {
    let copied = |name: &str, times: usize| vec![format!("*{name}"); times].join(",");
    let list = vec!["x"; 1100].join(",");
    let copies = [copied("a", 250), copied("b", 250), copied("c", 250)];
    let aliases =
        format!("a: &a [{list}]\nb: &b [{}]\nc: &c [{}]\nd: [{}]\n", copies[0], copies[1], copies[2]);
    let keys = (0..200).fold(String::new(), |all, at| format!("{all}k{at}:\n  ? *b\n  : *b\n"));
    vec![
        ("aliases", aliases),
        (
            "copied-text",
            format!("a: &a {}\nb: &b [{}]\nc: [{}]\n", "x".repeat(4000), copied("a", 900), copied("b", 900)),
        ),
        ("copied-keys", format!("a: &a [{list}]\nb: &b [{}]\n{keys}", copied("a", 100))),
        (
            "merged",
            format!(
                "a: &a {{k: [{list}]}}\nb: &b {{<<: [{}]}}\nc: {{<<: [{}]}}\n",
                copied("a", 900),
                copied("b", 900)
            ),
        ),
        ("brackets", format!("a: {}\n", "[".repeat(15_000))),
        ("braces", format!("a: {}\n", "{a: ".repeat(3_500))),
        ("steps", format!("a:\n  {}x\n", "- ".repeat(7_000))),
        ("tagged", format!("a: &a [{}]\nb: [{}]\n", vec!["!t x"; 1000].join(","), copied("a", 900))),
    ]
}

fn describing(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else {
        return Finding::Skipped("needs the memory of the service's process".into());
    };
    let skills = format!("/v1/skills/{}/{AGENT}", crate::client::encoded(&scene.user));
    let mut problems = Vec::new();
    let grown = growth(host.service(), || {
        for (index, (name, bomb)) in bombs().into_iter().enumerate() {
            let text = format!("---\nname: {name}\ndescription: of {name}\n{bomb}---\n");
            // Uploaded, or written by a run.
            if index % 2 == 0 {
                scene.client().upload(
                    &skills,
                    "overlay",
                    &zip(&[Entry::file(&format!("{name}/SKILL.md"), &text)]),
                );
            } else {
                scene.client().put(format!("{skills}/{name}/raw/SKILL.md?parents=true"), "---\n").ok();
                scene.client().put(format!("{skills}/{name}/raw/bomb"), &text).ok();
                let ran = scene
                    .exec(&format!("{skills}/{name}"), &json!({ "shell": "cat bomb > SKILL.md; echo end" }));
                assert!(ran.stdout().ends_with("end\n"), "the control: {}", ran.result);
            }
            let listed = scene.client().get(format!("{skills}/list")).ok();
            scene.client().get(format!("{skills}/catalog")).ok();
            let entry =
                listed["data"].as_array().into_iter().flatten().find(|entry| entry["skill_id"] == name);
            match entry {
                None => problems.push(format!("`{name}` is not listed: {listed}")),
                Some(entry) if entry["description"] != format!("of {name}") => {
                    problems.push(format!("`{name}` is listed as {entry}"));
                }
                Some(entry)
                    if !entry.to_string().contains("make it simpler")
                        && !entry.to_string().contains("not YAML") =>
                {
                    problems.push(format!("the problem of `{name}` has no name: {entry}"));
                }
                Some(_) => {}
            }
        }
    });
    if grown > GROWTH_BYTES_MAX {
        return Finding::Through(format!("the service grew by {grown} bytes"));
    }
    match problems.first() {
        None => Finding::Stopped,
        Some(problem) => Finding::Through(problem.clone()),
    }
}
