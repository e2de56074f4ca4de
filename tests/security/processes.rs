//! Attacks by processes that want to outlive their run, or to keep its answer from coming.

use std::time::Duration;

use crate::attack::Attack;
use crate::client::pace::paced;
use crate::expectation::Finding;
use crate::host;
use crate::payload::{self, Mode};
use crate::scene::Scene;

/// The deadline of runs here.
const DEADLINE_MS: u64 = 1000;
/// How often a payload that has not begun, on a machine that is busy with other things, gets twice the time.
const DOUBLED_MAX: u32 = 4;
/// From the deadline to the answer; what ends by itself is answered before that, too.
const ANSWER: Duration = Duration::from_millis(500);
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
    let (mut doubled, mut attempt) = (0, 1);
    loop {
        let deadline_ms = DEADLINE_MS << doubled;
        request["timeout_ms"] = payload::deadline_ms(if is_endless { deadline_ms } else { 10_000 }).into();
        scene.client().delete(format!("{tree}/raw/beat"));
        let ran = scene.exec(&tree, &request);
        let has_printed = ran.stdout().contains("partial");
        // It prints before it leaves the first process behind.
        assert!(has_printed || beats(scene, &tree) == 0, "the output is lost: {}", ran.result);
        if beats(scene, &tree) == 0 && doubled < DOUBLED_MAX {
            doubled += 1;
            continue;
        }
        assert!(has_printed, "the attack did not begin: {}", ran.result);
        assert_eq!(ran.timed_out(), is_endless, "{}", ran.result);
        if let Some(left) = survivors(scene, &tree) {
            return Finding::Through(left);
        }
        if ran.took < paced(Duration::from_millis(deadline_ms) + ANSWER) {
            return Finding::Stopped;
        }
        if attempt == TRIES {
            return Finding::Through(format!("the answer took {:?}", ran.took));
        }
        attempt += 1;
    }
}

/// How often the processes that a payload leaves have shown life.
fn beats(scene: &Scene<'_>, tree: &str) -> usize {
    let reply = scene.client().get(format!("{tree}/raw/beat"));
    if reply.status == 200 { reply.body.len() } else { 0 }
}

fn survivors(scene: &Scene<'_>, tree: &str) -> Option<String> {
    std::thread::sleep(paced(GONE));
    if scene.host().is_some() {
        let left = host::with_marker(&scene.user);
        if !left.is_empty() {
            return Some(format!("processes {left:?} are left"));
        }
    }
    let before = beats(scene, tree);
    assert!(before > 0, "there never was a beat");
    std::thread::sleep(paced(Duration::from_millis(200)));
    (beats(scene, tree) > before).then(|| "a process still writes".to_owned())
}
