//! Attacks on the layers of a skill: on the baseline that all users share, and on the markers of overlays.

use crate::attack::{Attack, Prey};
use crate::expectation::{Expectations, Expected, Finding};
use crate::host;
use crate::payload;
use crate::scene::{AGENT, SKILL, Scene, skill_of};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("changing_the_baseline_from_a_run", changing_the_baseline)
        .expecting(Expectations::EVERYWHERE.process(Expected::Stopped)),
    Attack::driven("forging_a_whiteout_with_rename", forging),
    Attack::driven("setting_markers_as_attributes", forging),
    Attack::driven("naming_files_like_whiteouts_of_other_formats", naming_whiteouts).everywhere(),
    Attack::driven("making_names_that_no_listing_can_hold", odd_names).everywhere(),
    Attack::driven("replacing_a_skills_directories_by_links_and_files", replacing_directories).everywhere(),
];

/// The skill as another user sees it, and the baseline on disk.
fn of_others(scene: &Scene<'_>) -> Vec<(String, String)> {
    let bystander = skill_of("bystander");
    let files = scene.client().files(&bystander);
    let mut all: Vec<_> =
        files.iter().map(|path| (path.clone(), scene.client().text(&bystander, path))).collect();
    if let Some(host) = scene.host() {
        all.extend(host::inventory(&host.root.join(format!("skill/baseline/{AGENT}/{SKILL}"))));
    }
    all
}

fn judged(scene: &Scene<'_>, before: &[(String, String)], finding: Finding) -> Finding {
    let after = of_others(scene);
    if after == before { finding } else { Finding::Through(format!("others see {after:?}")) }
}

/// Every kind of change that a run can make to its view of a skill.
fn changing_the_baseline(scene: &Scene<'_>) -> Finding {
    let before = of_others(scene);
    let line = "ln data.txt hard; echo changed >> hard; echo changed >> data.txt; python3 -c \"open('SKILL.md', 'r+')\
                .write('changed')\"; chmod 000 scripts/tool.py; mv scripts moved; mkdir scripts; rm -rf moved; \
                : > SKILL.md; touch -d 1999-01-01 data.txt; cat data.txt; echo end";
    let ran = scene.exec(&scene.skill(), &serde_json::json!({ "shell": line }));
    assert!(
        ran.stdout().contains("baseline\nchanged") && ran.stdout().ends_with("end\n"),
        "the control: {}",
        ran.result
    );
    let seen = scene.client().text(&scene.skill(), "data.txt");
    assert!(seen.contains("changed"), "the control: {seen}");
    judged(scene, &before, Finding::Stopped)
}

/// Payloads about the kernel, made where their traces would mean something.
fn forging(scene: &Scene<'_>) -> Finding {
    let before = of_others(scene);
    let finding = payload::hunt_in(scene, |scene| scene.skill(), "kernel.py", &Prey::default());
    if let Some(host) = scene.host() {
        let upper = host.root.join("skill/overlay").join(&scene.user).join(AGENT).join(SKILL);
        for path in host::paths(&upper) {
            let mut names = vec![0_u8; 4096];
            let length = rustix::fs::llistxattr(&path, names.as_mut_slice()).unwrap_or(0);
            let names = String::from_utf8_lossy(&names[..length]).into_owned();
            // What the kernel itself notes while an overlay is mounted means nothing to readers.
            let forged = ["opaque", "redirect", "metacopy", "whiteout"];
            if path.ends_with("marked")
                && forged.iter().any(|marker| names.contains(&format!("overlay.{marker}")))
            {
                return Finding::Through(format!("{}: {names}", path.display()));
            }
        }
    }
    judged(scene, &before, finding)
}

fn naming_whiteouts(scene: &Scene<'_>) -> Finding {
    let tree = scene.skill();
    let line = "echo x > .wh.data.txt; echo x > .wh..wh..opq; mkdir -p scripts; echo x > scripts/.wh..wh..opq; ls -a; echo end";
    let ran = scene.exec(&tree, &serde_json::json!({ "shell": line }));
    assert!(
        ran.stdout().contains(".wh.data.txt\n") && ran.stdout().ends_with("end\n"),
        "the control: {}",
        ran.result
    );
    let again = scene.exec(&tree, &serde_json::json!({ "shell": "cat data.txt scripts/tool.py; echo end" }));
    let shown = again.stdout() == "baseline\nprint('tool')\nend\n";
    let by_api = scene.client().get(format!("{tree}/content?path=data.txt")).status;
    if shown && by_api == 200 {
        Finding::Stopped
    } else {
        Finding::Through(format!("a name hides what it does not name: {by_api} {}", again.result))
    }
}

/// Names with line ends, that are no UTF-8, or too long for a path of the API.
fn odd_names(scene: &Scene<'_>) -> Finding {
    let script = "import os\n\
                  for name in (b'\\xff\\xfe', b'a\\nb', b'..\\n', b'\\x1b[31m', b' ', b'-rf', b'a\\\\b', b'\\xe2\\x80\\xaex', b'x' * 255):\n\
                  \x20   open(name, 'w').close()\n\
                  path = '.'\n\
                  for _ in range(60): path += '/' + 'd' * 200; os.mkdir('d' * 200); os.chdir('d' * 200)\n\
                  print('end')";
    for tree in [scene.workspace(), scene.skill()] {
        let run = serde_json::json!({ "command": "python3", "args": ["-c", script] });
        let ran = scene.exec(&tree, &run);
        assert!(ran.stdout().ends_with("end\n"), "the control: {}", ran.result);
        scene.put(&tree, "after", "after");
        for route in ["files", "dir", "files?depth=1&detail=true", "files?limit=5"] {
            let reply = scene.client().get(format!("{tree}/{route}"));
            if reply.status >= 500 {
                return Finding::Through(format!("{route}: {}", reply.status));
            }
        }
        assert_eq!(scene.client().text(&tree, "after"), "after", "the control");
        let again = scene.exec(&tree, &serde_json::json!({ "shell": "cat after" }));
        if again.stdout() != "after" {
            return Finding::Through(format!("the tree takes no more runs: {}", again.result));
        }
    }
    Finding::Stopped
}

/// The difference of a run is taken in through paths that the run has made something else of.
fn replacing_directories(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return Finding::Skipped("needs a look at the host".into()) };
    let outside = host.own_outside(&format!("outside-{}", scene.name), scene.canary());
    let (inside, before) = (host::inventory(&outside), of_others(scene));
    let tree = scene.skill();
    let script = format!(
        "import os, shutil\nshutil.rmtree('scripts')\nos.symlink({outside:?}, 'scripts')\nos.unlink('data.txt')\n\
         os.mkdir('data.txt')\nopen('data.txt/x', 'w').close()\nos.unlink('SKILL.md')\nos.symlink('../../../..', 'SKILL.md')\n\
         print('end')"
    );
    scene.put(&tree, "replace.py", &script);
    let ran = scene.exec(&tree, &serde_json::json!({ "command": "python3", "args": ["replace.py"] }));
    assert!(ran.stdout().ends_with("end\n"), "the control: {}", ran.result);
    scene.client().put(format!("{tree}/raw/scripts/made?parents=true"), "made");
    let read = scene.client().get(format!("{tree}/raw/scripts/secret"));
    let again = scene.exec(
        &tree,
        &serde_json::json!({ "shell": "echo x > data.txt/y; rm -rf data.txt scripts; echo end" }),
    );
    assert!(again.stdout().ends_with("end\n"), "the control: {}", again.result);
    if let Some(loot) = scene.loot_in(&String::from_utf8_lossy(&read.body)) {
        return Finding::Through(loot);
    }
    let same = host::inventory(&outside) == inside;
    judged(
        scene,
        &before,
        if same { Finding::Stopped } else { Finding::Through("written through a link".into()) },
    )
}
