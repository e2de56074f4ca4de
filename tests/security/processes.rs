//! Attacks by processes that want to outlive their run, or to keep its answer from coming.

use std::time::Duration;

use crate::attack::Attack;
use crate::client::pace::paced;
use crate::expectation::Finding;
use crate::host;
use crate::payload::{self, Mode};
use crate::scene::{Ran, Scene};

/// The deadline of runs here.
const DEADLINE_MS: u64 = 1000;
/// From the request to its answer.
const ANSWER: Duration = Duration::from_millis(1500);
/// From the answer to the end of the last process.
const GONE: Duration = Duration::from_millis(100);
/// How often a late answer may be blamed on other load of the machine.
const TRIES: usize = 3;

const fn at_the_deadline(name: &'static str) -> Attack {
    Attack::driven(name, |scene| outliving(scene, true)).alone().waiting()
}

const fn at_the_end(name: &'static str) -> Attack {
    Attack::driven(name, |scene| outliving(scene, false)).alone().waiting()
}

pub(crate) const ATTACKS: &[Attack] = &[
    at_the_deadline("hanging_past_the_deadline").everywhere(),
    at_the_deadline("leaving_the_session_past_the_deadline"),
    at_the_deadline("forking_twice_past_the_deadline"),
    at_the_deadline("waiting_in_a_shell_past_the_deadline"),
    at_the_deadline("leaving_the_group_past_the_deadline"),
    at_the_deadline("using_nohup_past_the_deadline"),
    at_the_deadline("holding_the_pipes_past_the_deadline").everywhere(),
    at_the_deadline("forking_without_end_past_the_deadline"),
    at_the_end("leaving_a_daemon_after_a_normal_end"),
    at_the_end("holding_the_pipes_after_a_normal_end").everywhere(),
];

/// Runs a payload that leaves processes behind; the answer must come in time with what was printed before, and nothing
/// may be left a moment later: neither a process nor a file that grows.
fn outliving(scene: &Scene<'_>, is_endless: bool) -> Finding {
    let tree = scene.workspace();
    let control = scene.control();
    payload::control(&control, &control.workspace(), "processes.py", &[]);
    payload::plant(scene, &tree, "processes.py");
    let mut request = payload::request(scene, "processes.py", scene.name, Mode::Evil, &[]);
    request["timeout_ms"] = payload::deadline_ms(if is_endless { DEADLINE_MS } else { 10_000 }).into();
    for attempt in 1..=TRIES {
        let ran = scene.exec(&tree, &request);
        assert!(ran.stdout().contains("partial"), "the attack did not begin: {}", ran.result);
        assert_eq!(ran.timed_out(), is_endless, "{}", ran.result);
        if let Some(left) = survivors(scene, &tree) {
            return Finding::Through(left);
        }
        if is_prompt(&ran) {
            return Finding::Stopped;
        }
        if attempt == TRIES {
            return Finding::Through(format!("the answer took {:?}", ran.took));
        }
    }
    unreachable!("the last try returns")
}

fn is_prompt(ran: &Ran) -> bool {
    ran.took < paced(ANSWER)
}

fn survivors(scene: &Scene<'_>, tree: &str) -> Option<String> {
    std::thread::sleep(paced(GONE));
    if scene.host().is_some() {
        let left = host::with_marker(&scene.user);
        if !left.is_empty() {
            return Some(format!("processes {left:?} are left"));
        }
    }
    let beats = || scene.client().get(format!("{tree}/raw/beat")).body.len();
    let before = beats();
    assert!(before > 0, "there never was a beat");
    std::thread::sleep(paced(Duration::from_millis(200)));
    (beats() > before).then(|| "a process still writes".to_owned())
}
