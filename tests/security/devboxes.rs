//! Attacks through the devbox dialect, whose callers may have every devbox: on what a phase says, and on what no name reaches.
//!
//! Each attack has a service of its own, because the dialect is off unless it is switched on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::attack::Attack;
use crate::client::{Client, encoded};
use crate::expectation::Finding;
use crate::records::{Mortal, nothing_to_start};
use crate::scene::{AGENT, Scene, VICTIM, workspace_of};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("running_in_a_devbox_that_is_paused", in_a_paused_devbox).everywhere().waiting(),
    Attack::driven("leaving_files_in_a_devbox_that_is_deleted", in_a_deleted_devbox).everywhere().waiting(),
    Attack::driven("naming_files_of_others_through_a_devbox", naming_files).everywhere().waiting(),
];

const API: &str = "/api/v1/devbox";
/// Threads that go on asking while a devbox changes.
const HAMMERS: usize = 4;
/// How often a devbox changes under them.
const ROUNDS: usize = 3;

/// A service with the dialect and the devbox `name` in it.
fn begun(scene: &Scene<'_>, name: &str) -> Option<Mortal> {
    let mortal = Mortal::of(scene, &format!("[devbox]\nenabled = true\nagent = \"{AGENT}\"\n"))?;
    create(&mortal.client, name);
    Some(mortal)
}

fn create(client: &Client, name: &str) {
    let created = client.post_json(API, &json!({ "name": name }));
    assert_eq!(created.status, 200, "{}", created.json());
}

fn exec(client: &Client, name: &str, line: &str) -> (u16, Value) {
    let reply = client.post_json(format!("{API}/{name}/exec"), &json!({ "command": ["sh", "-c", line] }));
    (reply.status, reply.json())
}

/// Asks for `work` again and again in several threads while `meanwhile` goes on.
fn hammered<T>(work: impl Fn() + Sync, meanwhile: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        for _ in 0..HAMMERS {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        // A failure ends the hammering, too: the suite would wait for it.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
        is_over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Commands are begun in a devbox while it is paused: none of them runs when that has been answered.
fn in_a_paused_devbox(scene: &Scene<'_>) -> Finding {
    let name = "paused";
    let Some(mortal) = begun(scene, name) else { return nothing_to_start() };
    let client = &mortal.client;
    let tree = workspace_of("devbox-paused");
    let size = || {
        let reply = client.get(format!("{tree}/stat?path=mark"));
        // It is not there before the first command.
        assert!(matches!(reply.status, 200 | 404), "{}", reply.json());
        reply.json()["data"]["size"].as_u64().unwrap_or(0)
    };
    let work = || drop(exec(client, name, "while echo x >> mark; do sleep 0.01; done"));
    hammered(work, || {
        for round in 0..ROUNDS {
            // The last one is left as it is: what would be begun there would go on to its deadline.
            if round > 0 {
                assert_eq!(client.post(format!("{API}/{name}/resume"), "").status, 200);
            }
            let before = size();
            while size() == before {
                thread::sleep(Duration::from_millis(5));
            }
            let paused = client.post(format!("{API}/{name}/pause"), "");
            if paused.status != 200 {
                return Finding::Through(format!("it is not paused: {}", paused.json()));
            }
            let left = size();
            thread::sleep(Duration::from_millis(100));
            let later = size();
            if later != left {
                let told =
                    format!("a command goes on in a devbox that is paused: {left} bytes, then {later}");
                return Finding::Through(told);
            }
        }
        Finding::Stopped
    })
}

/// Commands and uploads go on while a devbox is deleted: nothing of them is in the next one of the same name.
fn in_a_deleted_devbox(scene: &Scene<'_>) -> Finding {
    let name = "deleted";
    let Some(mortal) = begun(scene, name) else { return nothing_to_start() };
    let client = &mortal.client;
    let upload = || client.post(format!("{API}/{name}/files/upload?path=uploaded"), vec![b'x'; 100_000]);
    assert_eq!(upload().status / 100, 2, "the control: an upload");
    let work = || {
        upload();
        exec(client, name, "echo x > written; echo x > \"$HOME/written\"");
    };
    for _ in 0..ROUNDS {
        let gone = hammered(work, || {
            thread::sleep(Duration::from_millis(100));
            let deleted = client.delete(format!("{API}/{name}"));
            assert_eq!(deleted.status, 200, "{}", deleted.json());
            client.get(format!("{API}/{name}")).status
        });
        if gone != 404 {
            return Finding::Through(format!("the devbox is there after its removal: {gone}"));
        }
        create(client, name);
        let (status, told) = exec(client, name, "ls -A . ; ls \"$HOME\"/written");
        if status != 200 || told["data"]["stdout"] != "" {
            return Finding::Through(format!("something is left: {told}"));
        }
        // The control: what is written is there until then.
        exec(client, name, "echo x > written");
        assert_eq!(exec(client, name, "ls -A").1["data"]["stdout"], "written\n");
    }
    Finding::Stopped
}

/// The devbox of a name is asked for the victim's file of the same agent, in every spelling.
fn naming_files(scene: &Scene<'_>) -> Finding {
    let name = "naming";
    let Some(mortal) = begun(scene, name) else { return nothing_to_start() };
    let client = &mortal.client;
    let theirs = client.get(format!("{}/raw/secret", workspace_of(VICTIM)));
    assert_eq!(theirs.bytes(200), b"the victim's\n", "the control");
    let linking = format!("ln -s ../../{VICTIM}/{AGENT}/secret link; ln -s ../../{VICTIM} up; ls");
    let (status, made) = exec(client, name, &linking);
    assert!(status == 200 && made["data"]["stdout"] == "link\nup\n", "the control: links: {made}");
    let own = client.post(format!("{API}/{name}/files/upload?path=own"), "one's own");
    assert_eq!(own.status / 100, 2, "the control: {}", own.json());
    let own = client.get(format!("{API}/{name}/files/download?path=own"));
    assert_eq!(own.bytes(200), b"one's own", "the control");
    for path in [
        format!("../../{VICTIM}/{AGENT}/secret"),
        format!("/workspace/../../{VICTIM}/{AGENT}/secret"),
        format!("{}/sandbox/{VICTIM}/{AGENT}/secret", client.root),
        "link".to_owned(),
        format!("up/{AGENT}/secret"),
        format!("/workspace//sandbox/{VICTIM}/{AGENT}/secret"),
    ] {
        let path = encoded(&path);
        let read = client.get(format!("{API}/{name}/files/download?path={path}"));
        if read.status == 200 {
            return Finding::Through(format!("{path} is read"));
        }
        let written = client.post(format!("{API}/{name}/files/upload?path={path}"), "the attacker's");
        let now = client.get(format!("{}/raw/secret", workspace_of(VICTIM)));
        if now.bytes(200) != b"the victim's\n" {
            return Finding::Through(format!("{path} is written: {}", written.status));
        }
    }
    for other in [VICTIM, "..", "../victim", "naming/../victim", "NAMING"] {
        let told = client.get(format!("{API}/{}/files/download?path=secret", encoded(other)));
        if told.status == 200 {
            return Finding::Through(format!("the devbox `{other}` has the victim's file"));
        }
    }
    Finding::Stopped
}
