//! Attacks on files of the host, of the store and of other users.

use std::path::PathBuf;

use crate::attack::{Attack, Prey};
use crate::expectation::{Expectations, Expected, Finding};
use crate::host;
use crate::payload;
use crate::scene::{AGENT, SKILL, Scene, VICTIM};

const LOOKING: Expected = Expected::NotStopped("Landlock mediates opening, not `stat`");

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::hunting("files.py", "reading_a_host_file_by_its_path", secret),
    Attack::hunting("files.py", "reading_a_host_file_through_a_symlink", secret),
    Attack::hunting("files.py", "reading_a_host_file_through_a_hard_link", secret),
    Attack::hunting("files.py", "reading_a_host_file_through_links_of_proc", secret),
    Attack::hunting("files.py", "reading_a_host_file_by_climbing", secret),
    Attack::hunting("files.py", "reading_password_hashes", |_| {
        Some(Prey {
            control: vec!["own".into()],
            evil: ["/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/sudoers", "/root/.ssh/id_rsa"]
                .map(String::from)
                .to_vec(),
        })
    }),
    Attack::hunting("files.py", "listing_directories_of_the_host", |scene| {
        let secret = scene.stage.secret();
        let outside = secret.parent()?.to_str()?.to_owned();
        Some(Prey { control: vec![".".into(), "own".into()], evil: vec![outside, "secret".into()] })
    }),
    Attack::driven("changing_a_host_file", |scene| writing_outside(scene, "secret")),
    Attack::driven("making_files_on_the_host", |scene| writing_outside(scene, "")),
    Attack::driven("removing_and_renaming_host_files", |scene| writing_outside(scene, "")),
    Attack::driven("changing_mode_and_times_of_a_host_file", |scene| writing_outside(scene, "secret")),
    Attack::hunting("files.py", "looking_at_a_host_file", secret)
        .expecting(Expectations::WALLED.landlock(LOOKING)),
    Attack::hunting("files.py", "reading_files_of_the_store", |scene| {
        stored(
            scene,
            &[
                "",
                ".filesecbox",
                ".filesecbox/lock",
                ".filesecbox/format",
                ".filesecbox/stage",
                ".filesecbox/keys",
                ".filesecbox/keys/signing",
                ".filesecbox/audit",
                ".filesecbox/audit/0000000000000001.jsonl",
                "../config.toml",
            ],
        )
    }),
    Attack::hunting("files.py", "reading_a_neighbours_workspace", |scene| {
        stored(
            scene,
            &[&format!("sandbox/{VICTIM}/{AGENT}/secret"), &format!("sandbox/{VICTIM}/{AGENT}"), "sandbox"],
        )
    }),
    Attack::hunting("files.py", "reading_a_neighbours_overlay", |scene| {
        let overlay = format!("skill/overlay/{VICTIM}/{AGENT}/{SKILL}");
        stored(scene, &[&format!("{overlay}/secret"), &overlay, "skill/overlay"])
    }),
    Attack::hunting("files.py", "reading_a_neighbours_home", |scene| {
        let home = format!(".filesecbox/packages/{VICTIM}/{AGENT}");
        stored(scene, &[&format!("{home}/secret"), &home])
    }),
    Attack::hunting("files.py", "reading_skills_of_another_agent", |scene| {
        stored(
            scene,
            &["skill/baseline/other-agent/foreign/secret", "skill/baseline/other-agent", "skill/baseline"],
        )
    }),
    Attack::hunting("files.py", "finding_a_neighbour_beside_the_own_tree", |_| {
        Some(Prey::one("own", VICTIM))
    }),
    Attack::driven("writing_to_neighbours_and_the_baseline", writing_to_neighbours),
    Attack::driven("leaving_files_in_shared_directories", leaving_files),
];

/// A file that is not the attacker's, or one's own for the control.
pub(crate) fn secret(scene: &Scene<'_>) -> Option<Prey> {
    Some(Prey::one("own", scene.stage.secret().to_str()?))
}

/// Places in the data directory.
fn stored(scene: &Scene<'_>, paths: &[&str]) -> Option<Prey> {
    let evil = paths.iter().map(|path| scene.stage.root.join(path).display().to_string()).collect();
    Some(Prey { control: vec!["own".into()], evil })
}

/// Runs a payload on a directory outside that is open to all users, or on the file `name` in it, and looks what it did.
fn writing_outside(scene: &Scene<'_>, name: &str) -> Finding {
    let Some(host) = scene.host() else { return Finding::Skipped("needs a look at the host".into()) };
    let outside = host.own_outside(&format!("outside-{}", scene.name), scene.canary());
    let before = host::inventory(&outside);
    let (own, other) =
        if name.is_empty() { (".".into(), outside.clone()) } else { ("own".into(), outside.join(name)) };
    let prey = Prey { control: vec![own], evil: vec![other.display().to_string()] };
    let finding = payload::hunt(scene, "files.py", &prey);
    let after = host::inventory(&outside);
    if after == before { finding } else { Finding::Through(format!("{before:?} became {after:?}")) }
}

fn writing_to_neighbours(scene: &Scene<'_>) -> Finding {
    let places: Vec<PathBuf> = [
        format!("skill/baseline/{AGENT}/{SKILL}"),
        format!("skill/baseline/{AGENT}"),
        format!("skill/overlay/{VICTIM}/{AGENT}/{SKILL}"),
        format!("skill/overlay/{VICTIM}/{AGENT}"),
        format!("sandbox/{VICTIM}/{AGENT}"),
        format!(".filesecbox/packages/{VICTIM}/{AGENT}"),
        ".filesecbox/stage".to_owned(),
        ".filesecbox/keys".to_owned(),
        ".filesecbox/audit".to_owned(),
    ]
    .map(|path| scene.stage.root.join(path))
    .into();
    // Where the host cannot be looked at, what the payload says and the victim's view at the end must do.
    let look =
        || scene.host().map(|_| [&places[0], &places[2], &places[4]].map(|place| host::inventory(place)));
    let before = look();
    let evil = places.iter().map(|place| place.display().to_string()).collect();
    let finding = payload::hunt(scene, "files.py", &Prey { control: vec![".".into()], evil });
    if look() == before { finding } else { Finding::Through("something of a neighbour changed".into()) }
}

/// Files that one run leaves in a shared directory must be neither on the host nor before another user.
fn leaving_files(scene: &Scene<'_>) -> Finding {
    let name = format!("{}-left", scene.canary());
    let places = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/dev/mqueue", "/", "/run/lock"].map(String::from);
    let told = |places: &[String]| [std::slice::from_ref(&name), places].concat();
    let prey = Prey { control: told(&[".".into()]), evil: told(&places) };
    let finding = payload::hunt(scene, "files.py", &prey);
    if finding != Finding::Stopped {
        return finding;
    }
    if scene.host().is_some()
        && let Some(place) = places.iter().find(|place| PathBuf::from(place).join(&name).exists())
    {
        return Finding::Through(format!("left in {place}"));
    }
    let other = Scene::new(scene.stage, "who_comes_later");
    let seen = other.script(&other.workspace(), "ls -a /tmp /var/tmp /dev/shm /run 2> /dev/null; echo end");
    assert!(seen.stdout().ends_with("end\n"), "the control: {}", seen.result);
    match scene.loot_in(seen.stdout()) {
        Some(loot) => Finding::Through(loot),
        None => Finding::Stopped,
    }
}
