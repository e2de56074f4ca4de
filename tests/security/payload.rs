//! Runs a payload twice: as a control, which must obtain something, and as the attack, which must not.
//!
//! A payload is a Python file of `payloads/` with one function for each attack. It prints `begin` and `end` around what
//! it does, and a line that begins with `GOT` for each thing that it obtains. The control takes the same way to
//! something that is its own to have, so that a payload that cannot obtain anything at all is not taken for a wall.

use serde_json::{Value, json};

use crate::attack::Prey;
use crate::client::pace::slowness;
use crate::expectation::Finding;
use crate::scene::{Ran, Scene};

/// The module that stands beside every payload.
const PRELUDE: (&str, &str) = ("attack.py", include_str!("payloads/attack.py"));

const FILES: &[(&str, &str)] = &[
    ("copies.py", include_str!("payloads/copies.py")),
    ("disk.py", include_str!("payloads/disk.py")),
    ("files.py", include_str!("payloads/files.py")),
    ("kernel.py", include_str!("payloads/kernel.py")),
    ("modes.py", include_str!("payloads/modes.py")),
    ("neighbours.py", include_str!("payloads/neighbours.py")),
    ("network.py", include_str!("payloads/network.py")),
    ("others.py", include_str!("payloads/others.py")),
    ("planting.py", include_str!("payloads/planting.py")),
    ("processes.py", include_str!("payloads/processes.py")),
    ("programs.py", include_str!("payloads/programs.py")),
    ("resources.py", include_str!("payloads/resources.py")),
];

/// How long a payload may take, unless the attack is about that.
const DEADLINE_MS: u64 = 15_000;

/// Whether a payload does what it must be able to do or what it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Control,
    Evil,
}

/// Puts a payload into a tree.
pub(crate) fn plant(scene: &Scene<'_>, tree: &str, file: &str) {
    let (_, text) = FILES.iter().find(|(name, _)| *name == file).expect("a file of `payloads/`");
    scene.put(tree, PRELUDE.0, PRELUDE.1);
    scene.put(tree, file, text);
}

/// A deadline of a run in milliseconds that is enough on a real processor, as it is enough here. The service cuts one that is
/// longer than it grants.
pub(crate) fn deadline_ms(milliseconds: u64) -> u64 {
    milliseconds * u64::from(slowness())
}

/// Describes the run of a function of a planted payload, with the user on its command line, by which its processes are
/// known. What it is told goes through standard input, because arguments
/// are scanned for paths.
pub(crate) fn request(scene: &Scene<'_>, file: &str, function: &str, mode: Mode, args: &[String]) -> Value {
    let told = json!({ "evil": mode == Mode::Evil, "args": args, "slowness": slowness() }).to_string();
    json!({
        "command": "python3",
        "args": [file, function, scene.user],
        "stdin": told,
        "timeout_ms": deadline_ms(DEADLINE_MS),
    })
}

/// Plants a payload in a tree and runs the attack's function of it.
fn run(scene: &Scene<'_>, tree: &str, file: &str, mode: Mode, args: &[String]) -> Ran {
    plant(scene, tree, file);
    scene.exec(tree, &request(scene, file, scene.name, mode, args))
}

/// Runs a payload as a control: it must reach its end and obtain something.
pub(crate) fn control(scene: &Scene<'_>, tree: &str, file: &str, args: &[String]) {
    let ran = run(scene, tree, file, Mode::Control, args);
    assert!(
        ran.stdout().starts_with("begin\n")
            && ran.stdout().ends_with("end\n")
            && ran.stdout().contains("GOT "),
        "the control obtains nothing, so nothing is known: {}",
        ran.result
    );
}

/// Runs a payload as the attack and tells what it obtained.
pub(crate) fn evil(scene: &Scene<'_>, tree: &str, file: &str, args: &[String]) -> Finding {
    let ran = run(scene, tree, file, Mode::Evil, args);
    judge(scene, &ran)
}

/// Tells what a run obtained.
///
/// # Panics
/// When it neither obtained anything nor came to its end: then the attack was not made.
pub(crate) fn judge(scene: &Scene<'_>, ran: &Ran) -> Finding {
    if let Some(line) = ran.stdout().lines().find(|line| line.starts_with("GOT")) {
        return Finding::Through(line.chars().take(200).collect());
    }
    if let Some(loot) = scene.loot_in(&ran.result.to_string()) {
        return Finding::Through(loot);
    }
    assert!(ran.stdout().ends_with("end\n"), "the attack did not come to its end: {}", ran.result);
    Finding::Stopped
}

/// The control, then the attack, in workspaces of their own.
pub(crate) fn hunt(scene: &Scene<'_>, file: &str, prey: &Prey) -> Finding {
    hunt_in(scene, |scene| scene.workspace(), file, prey)
}

/// The control, then the attack, each in its user's tree.
pub(crate) fn hunt_in(scene: &Scene<'_>, tree: fn(&Scene<'_>) -> String, file: &str, prey: &Prey) -> Finding {
    let controlled = scene.control();
    // What the control is after; the attack is after the same of another user.
    for name in ["own", "secret"] {
        controlled.put(&tree(&controlled), name, "GOT own\n");
    }
    control(&controlled, &tree(&controlled), file, &prey.control);
    scene.put(&tree(scene), "own", "own\n");
    evil(scene, &tree(scene), file, &prey.evil)
}
