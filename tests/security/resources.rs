//! Attacks on what all share: processes, memory, disk, places for runs. Amounts are small, and so are the limits.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::attack::{Attack, Prey};
use crate::client::pace::{paced, slowness};
use crate::expectation::Finding;
use crate::host;
use crate::payload::{self, Mode};
use crate::planting::wait_until_ready;
use crate::scene::{Scene, workspace_of};

const MIB: u64 = 1024 * 1024;
/// The text that a flood writes.
const FLOOD_BYTES: u64 = 500 * MIB;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::hunting("resources.py", "forking_until_refused", too_many_processes).alone(),
    Attack::hunting("resources.py", "starting_threads_until_refused", too_many_processes).alone(),
    Attack::hunting("resources.py", "taking_memory_in_one_process", |scene| {
        let most = small(scene, "memory_bytes", 2048 * MIB)?;
        Some(Prey::one((8 * MIB).to_string(), (most + 64 * MIB).to_string()))
    })
    .alone(),
    Attack::driven("taking_memory_in_many_processes", taking_memory_together).alone(),
    Attack::hunting("resources.py", "writing_one_large_file", |scene| {
        Some(Prey::one(MIB.to_string(), (scene.stage.limit("file_bytes") + MIB).to_string()))
    }),
    Attack::driven("filling_the_disk_with_many_files", |scene| {
        let Some(most) = scene.stage.disk_limit("bytes").filter(|most| *most <= 128 * MIB) else {
            return too_large_for_a_test();
        };
        filling(scene, &["2", "1000"], &[(most / MIB * 2).to_string(), MIB.to_string()])
    }),
    Attack::driven("making_files_without_number", |scene| {
        let Some(most) = scene.stage.disk_limit("files").filter(|most| *most <= 5000) else {
            return too_large_for_a_test();
        };
        filling(scene, &["10"], &[(most * 3).to_string()])
    }),
    Attack::hunting("resources.py", "opening_files_without_number", |scene| {
        Some(Prey::one("10", (scene.stage.limit("open_files") + 10).to_string()))
    }),
    Attack::driven("using_the_processor_without_end", using_the_processor),
    Attack::driven("writing_output_without_end", flooding).everywhere().alone(),
    Attack::driven("locking_files_that_the_api_uses", locking).everywhere(),
    Attack::driven("taking_all_places_for_runs", taking_places).everywhere().alone(),
    Attack::driven("keeping_others_from_forking_with_processes", bombing).alone().waiting(),
    Attack::driven("keeping_others_from_forking_with_threads", bombing).alone().waiting(),
];

/// A limit, where it is small enough that going beyond it does no harm.
fn small(scene: &Scene<'_>, name: &str, most: u64) -> Option<u64> {
    Some(scene.stage.limit(name)).filter(|limit| *limit <= most)
}

/// Without a user id of its own, a run may have some processes more than configured: those that others ended since
/// they were counted.
fn too_many_processes(scene: &Scene<'_>) -> Option<Prey> {
    let most = small(scene, "processes", 1024)?;
    Some(Prey::one("5", (most + 200).to_string()))
}

fn too_large_for_a_test() -> Finding {
    Finding::Skipped("the service's limit is larger than what a test may write".into())
}

/// Runs a payload that fills the disk, expects that it is ended, and clears up after it, after which there is room
/// again.
fn filling(scene: &Scene<'_>, control: &[&str], evil: &[String]) -> Finding {
    let told: Vec<String> = control.iter().map(|arg| (*arg).to_owned()).collect();
    payload::control(&scene.control(), &scene.control().workspace(), "resources.py", &told);
    let tree = scene.workspace();
    payload::plant(scene, &tree, "resources.py");
    let request = payload::request(scene, "resources.py", scene.name, Mode::Evil, evil);
    let ran = scene.exec(&tree, &request);
    for directory in ["fill", "many"] {
        scene.client().delete(format!("{tree}/file?path={directory}&recursive=true"));
    }
    if ran.stdout().contains("GOT") {
        return Finding::Through("twice as much as configured".into());
    }
    assert_eq!(ran.result["limit"], "disk", "{}", ran.result);
    scene.put(&tree, "after", "there is room");
    Finding::Stopped
}

/// The whole run dies at the limit; the payload would say that it got past.
fn taking_memory_together(scene: &Scene<'_>) -> Finding {
    let Some(most) = small(scene, "run_memory_bytes", 2048 * MIB) else {
        return Finding::Skipped("the service's limit is more than a test may take".into());
    };
    let told = |count: u64, size: u64| [count.to_string(), size.to_string()];
    let tree = scene.workspace();
    payload::control(&scene.control(), &scene.control().workspace(), "resources.py", &told(2, 8 * MIB));
    payload::plant(scene, &tree, "resources.py");
    let request = payload::request(scene, "resources.py", scene.name, Mode::Evil, &told(4, most / 3));
    let ran = scene.exec(&tree, &request);
    if ran.result["limit"] == "memory" && !ran.stdout().contains("GOT") {
        return Finding::Stopped;
    }
    payload::judge(scene, &ran)
}

/// The kernel sends a signal at the limit; the payload would say that it got past.
fn using_the_processor(scene: &Scene<'_>) -> Finding {
    let Some(most) = small(scene, "cpu_seconds", 5 * u64::from(slowness())) else {
        return Finding::Skipped("the service's limit is longer than a test may be".into());
    };
    let tree = scene.workspace();
    payload::control(&scene.control(), &scene.control().workspace(), "resources.py", &["0".into()]);
    payload::plant(scene, &tree, "resources.py");
    let mut request =
        payload::request(scene, "resources.py", scene.name, Mode::Evil, &[(most * 2).to_string()]);
    // However little of the processor a busy machine gives it: the limit is to end it, not the deadline.
    request["timeout_ms"] = json!(payload::deadline_ms(120_000));
    let ran = scene.exec(&tree, &request);
    if ran.stdout().contains("GOT") {
        return Finding::Through("twice the processor time that is configured".into());
    }
    assert_eq!(ran.result["signal"], "SIGXCPU", "{}", ran.result);
    Finding::Stopped
}

/// The service keeps the beginning and the end, and counts the rest.
fn flooding(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    payload::control(&scene.control(), &scene.control().workspace(), "resources.py", &["0".into()]);
    payload::plant(scene, &tree, "resources.py");
    let request = payload::request(scene, "resources.py", scene.name, Mode::Evil, &[FLOOD_BYTES.to_string()]);
    let mut written = 0;
    let mut flood = || {
        let ran = scene.exec(&tree, &request);
        assert!(ran.stdout().ends_with("end\n"), "the flood did not come to its end");
        written = ran.result["stdout_bytes"].as_u64().unwrap();
    };
    let grown = match scene.host() {
        Some(host) => host::growth(host.service(), flood),
        None => {
            flood();
            0
        }
    };
    assert!(written >= FLOOD_BYTES, "only {written} bytes were written");
    if grown < 32 * MIB {
        Finding::Stopped
    } else {
        Finding::Through(format!("the service grew by {grown} bytes"))
    }
}

/// Locks of files hold up only processes that ask for them.
fn locking(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    scene.write("a", "one\ntwo\n");
    scene.write("b", "x");
    payload::control(
        &scene.control(),
        &scene.control().workspace(),
        "resources.py",
        &["a".into(), "b".into()],
    );
    payload::plant(scene, &tree, "resources.py");
    let request = payload::request(scene, "resources.py", scene.name, Mode::Evil, &["a".into(), "b".into()]);
    std::thread::scope(|threads| {
        let run = threads.spawn(|| scene.exec(&tree, &request));
        let begun = Instant::now();
        while scene.client().get(format!("{tree}/stat?path=locked")).status != 200 {
            assert!(
                !run.is_finished() && begun.elapsed() < paced(Duration::from_secs(20)),
                "nothing was locked"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let begun = Instant::now();
        let statuses = [
            scene.client().get(format!("{tree}/content?path=a")).status,
            scene.client().put(format!("{tree}/edit?path=a&start=1&end=1"), "three\n").status,
            scene.client().put(format!("{tree}/raw/b"), "y").status,
            scene.client().delete(format!("{tree}/file?path=b")).status,
        ];
        let took = begun.elapsed();
        scene.write("enough", "");
        run.join().unwrap();
        if took < paced(Duration::from_secs(2)) && statuses.iter().all(|status| *status == 200) {
            Finding::Stopped
        } else {
            Finding::Through(format!("the API was held up for {took:?}: {statuses:?}"))
        }
    })
}

/// One user starts as many runs as the service will take; another one must still get a run in time.
fn taking_places(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    let line = json!({ "shell": "touch ready; i=0; while [ $i -lt 300 ] && ! [ -e enough ]; do sleep 0.02; i=$((i + 1)); done" });
    std::thread::scope(|threads| {
        // More than there are places for all users.
        let runs: Vec<_> = (0..80)
            .map(|_| threads.spawn(|| scene.client().post_json(format!("{tree}/exec"), &line).status))
            .collect();
        wait_until_ready(scene, &tree, || false);
        let begun = Instant::now();
        let other = json!({ "shell": "echo served" });
        let served = scene.client().post_json(format!("{}/exec", workspace_of("somebody_else")), &other);
        let took = begun.elapsed();
        scene.write("enough", "");
        let statuses: Vec<u16> = runs.into_iter().map(|run| run.join().unwrap()).collect();
        assert!(statuses.contains(&200), "the control: {statuses:?}");
        if served.status == 200 && took < paced(Duration::from_secs(2)) {
            Finding::Stopped
        } else {
            Finding::Through(format!("another user waited for {took:?}: {}", served.status))
        }
    })
}

/// Commands of others while a bomb is there: two that were there before it, and as many as this after it.
const AFTER_THE_BOMB: usize = 4;

/// One user makes as many processes or threads as it may, and tries to make more without end. What others have running,
/// and what they start, must go on making processes.
fn bombing(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    payload::control(&scene.control(), &scene.control().workspace(), "resources.py", &["5".into()]);
    payload::plant(scene, &tree, "resources.py");
    let Some(most) = small(scene, "processes", 1024) else { return too_large_for_a_test() };
    let mut bomb = payload::request(scene, "resources.py", scene.name, Mode::Evil, &[(most * 4).to_string()]);
    bomb["timeout_ms"] = payload::deadline_ms(120_000).into();
    let others = ["first", "second"].map(|name| workspace_of(&format!("{name}-{}", scene.user)));
    let forking = "set -e; i=0; touch begun; while ! [ -e enough ] && [ $i -lt 2000 ]; do /bin/echo $i | cat > n; \
                   i=$((i + 1)); done; echo served";
    let failed = std::thread::scope(|threads| {
        let early: Vec<_> = others
            .iter()
            .map(|other| {
                let line = json!({ "shell": forking, "timeout_ms": payload::deadline_ms(120_000) });
                threads.spawn(move || scene.client().post_json(format!("{other}/exec"), &line))
            })
            .collect();
        let wait = |tree: &str, file: &str| {
            let begun = Instant::now();
            while scene.client().get(format!("{tree}/stat?path={file}")).status != 200 {
                // The bomb gives way to the others, who make processes all the time.
                assert!(begun.elapsed() < paced(Duration::from_secs(60)), "`{file}` never came");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        others.iter().for_each(|other| wait(other, "begun"));
        let run = threads.spawn(|| scene.client().post_json(format!("{tree}/exec"), &bomb));
        wait(&tree, "lit");
        let late = json!({ "shell": "for i in 1 2 3 4 5 6 7 8; do /bin/echo $i | cat || exit 1; done; echo served" });
        let mut failed = Vec::new();
        for _ in 0..AFTER_THE_BOMB {
            let user = workspace_of(&format!("late-{}", scene.user));
            failed.extend(unserved(&scene.client().post_json(format!("{user}/exec"), &late)));
        }
        if run.is_finished() {
            failed.push("others took longer than the bomb lasted".to_owned());
        }
        for other in &others {
            scene.put(other, "enough", "");
        }
        failed.extend(early.into_iter().filter_map(|run| unserved(&run.join().unwrap())));
        scene.write("enough", "");
        let ended = run.join().unwrap().ok();
        assert!(ended["data"]["stdout"].as_str().is_some_and(|out| out.contains("begin")), "{ended}");
        failed
    });
    match failed.first() {
        None => Finding::Stopped,
        Some(failure) => Finding::Through(format!("{} of others failed: {failure}", failed.len())),
    }
}

/// Why a command of another user did not come to its end, or had to try again: a shell repeats `fork` for a while.
fn unserved(answer: &crate::client::Reply) -> Option<String> {
    let text = String::from_utf8_lossy(&answer.body);
    let is_served = text.contains("served\\n") && !text.contains("temporarily unavailable");
    (!is_served).then(|| text.chars().take(300).collect())
}
