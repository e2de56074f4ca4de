//! Attacks by changing modes, times and owners, which close a file to all users without opening it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::attack::{Attack, Prey};
use crate::expectation::Finding;
use crate::payload;
use crate::scene::{AGENT, SKILL, Scene, VICTIM, workspace_of};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("closing_the_services_directories_to_everyone", closing).alone(),
    Attack::driven("changing_attributes_of_a_neighbours_files", changing),
    Attack::driven("changing_a_path_while_it_is_judged", flipping).waiting(),
];

/// The time that the payload gives to what it can date.
const DATED: i64 = 86_400;

/// The traces of an attribute change: mode, owner, and whether the payload has dated it. Other times of the
/// service's directories change with its work.
fn facts(paths: &[PathBuf]) -> Vec<(PathBuf, u32, u32, bool)> {
    let facts = |path: &PathBuf| {
        let meta = fs::symlink_metadata(path).ok()?;
        Some((path.clone(), meta.mode(), meta.uid(), meta.mtime() == DATED))
    };
    paths.iter().filter_map(facts).collect()
}

/// The attack on `paths`, told `own` for its control; afterwards every mode is as it was.
fn hunt(scene: &Scene<'_>, own: &str, paths: &[PathBuf]) -> Finding {
    let before = facts(paths);
    let evil = paths.iter().map(|path| path.display().to_string()).collect();
    let finding = payload::hunt(scene, "modes.py", &Prey { control: vec![own.into()], evil });
    let after = facts(paths);
    for (path, mode, ..) in &before {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(*mode));
    }
    if after == before || matches!(finding, Finding::Through(_)) {
        return finding;
    }
    Finding::Through(format!("{before:?} became {after:?}"))
}

/// With one `chmod` of a directory of the service, it would be closed to all its users for good.
fn closing(scene: &Scene<'_>) -> Finding {
    if scene.host().is_none() {
        return Finding::Skipped("needs a look at the host".into());
    }
    let below = [
        "",
        ".filesecbox",
        ".filesecbox/stage",
        ".filesecbox/work",
        ".filesecbox/audit",
        ".filesecbox/journal",
        ".filesecbox/bases",
        ".filesecbox/versions",
        ".filesecbox/trash",
        ".filesecbox/sandboxes",
        ".filesecbox/history",
        ".filesecbox/refused",
        ".filesecbox/format",
        ".filesecbox/salt",
        "sandbox",
        "skill",
        "skill/baseline",
        "skill/overlay",
    ];
    let paths: Vec<PathBuf> = below.iter().map(|path| scene.stage.root.join(path)).collect();
    let missing: Vec<&PathBuf> = paths.iter().filter(|path| !path.exists()).collect();
    assert!(missing.len() < 4, "the data directory has another layout: {missing:?}");
    let present: Vec<PathBuf> = paths.iter().filter(|path| path.exists()).cloned().collect();
    let finding = hunt(scene, "shut", &present);
    let tree = workspace_of(VICTIM);
    let read = scene.client().get(format!("{tree}/raw/secret")).status;
    let ran =
        scene.client().post_json(format!("{tree}/exec"), &serde_json::json!({ "command": "ls" })).status;
    assert_eq!((read, ran), (200, 200), "the service serves others again");
    finding
}

fn neighbours(root: &Path) -> Vec<PathBuf> {
    [
        format!("sandbox/{VICTIM}/{AGENT}"),
        format!("sandbox/{VICTIM}/{AGENT}/secret"),
        format!("skill/overlay/{VICTIM}/{AGENT}/{SKILL}"),
        format!("skill/overlay/{VICTIM}/{AGENT}/{SKILL}/secret"),
        format!("skill/baseline/{AGENT}/{SKILL}"),
        format!("skill/baseline/{AGENT}/{SKILL}/data.txt"),
        format!("skill/baseline/{AGENT}/{SKILL}/scripts"),
    ]
    .map(|path| root.join(path))
    .into()
}

fn changing(scene: &Scene<'_>) -> Finding {
    if scene.host().is_none() {
        return Finding::Skipped("needs a look at the host".into());
    }
    hunt(scene, "own", &neighbours(&scene.stage.root))
}

fn flipping(scene: &Scene<'_>) -> Finding {
    if scene.host().is_none() {
        return Finding::Skipped("needs a look at the host".into());
    }
    hunt(scene, "own", &[scene.stage.root.join(format!("sandbox/{VICTIM}/{AGENT}/secret"))])
}
