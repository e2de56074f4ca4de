//! Attacks on and through the copies of trees in which commands run: of skills below tier `namespaces`, which stay for the next
//! run, and of what is to be decided about, at every tier.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::attack::{Attack, Prey};
use crate::client::encoded;
use crate::client::pace::paced;
use crate::expectation::{Expectations, Expected, Finding};
use crate::host;
use crate::payload::{self, Mode};
use crate::planting::{loot, read_everyhow};
use crate::scene::{Scene, VICTIM, skill_of};
use crate::stage::Host;

const FILE: &str = "copies.py";
/// How long a run may take to say something.
const PATIENCE: Duration = Duration::from_secs(30);
/// The deadline of runs that stay until they are told to end, in milliseconds.
const DEADLINE_MS: u64 = 60_000;
const NO_COPIES: Expected = Expected::NotRun("skills are live views there");

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("reaching_the_kept_copy_of_another", reaching)
        .expecting(Expectations::WALLED.namespaces(NO_COPIES)),
    Attack::driven("changing_a_copy_after_its_run", changing)
        .expecting(Expectations::WALLED.namespaces(NO_COPIES)),
    Attack::driven("changing_what_was_decided_about", forging_a_decision).everywhere(),
    Attack::driven("planting_in_a_copy_that_is_taken_in", planting).expecting(
        Expectations::EVERYWHERE
            .process(Expected::NotRun("the command itself reads every file that it could link")),
    ),
];

/// The copies on the host in which `name` has a text that holds `text`.
fn copies_with(host: &Host, name: &str, text: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(host.root.join(".filesecbox/work")).unwrap().filter_map(Result::ok);
    let has = |copy: &PathBuf| fs::read_to_string(copy.join(name)).is_ok_and(|found| found.contains(text));
    entries.map(|entry| entry.path()).filter(has).collect()
}

/// The output of a line of the shell in a tree.
fn line(scene: &Scene<'_>, tree: &str, line: &str) -> String {
    scene.exec(tree, &json!({ "shell": line })).stdout().to_owned()
}

/// The attacker knows where the victim's kept copy is, and its own with another agent.
fn reaching(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return Finding::Skipped("needs a look at the host".into()) };
    let other = format!("/v1/skills/{}/other-agent/foreign", encoded(&scene.user));
    for tree in [skill_of(VICTIM), other] {
        let seen = line(scene, &tree, "cat secret");
        assert!(seen.starts_with(scene.canary()), "the control: {seen}");
    }
    let copies: Vec<PathBuf> = ["overlay", "foreign-agent"]
        .iter()
        .flat_map(|kind| copies_with(host, "secret", &format!("{}-{kind}", scene.canary())))
        .collect();
    assert!(copies.len() > 1, "the control: there are no copies but {copies:?}");
    let look = || copies.iter().map(|copy| host::inventory(copy)).collect::<Vec<_>>();
    let before = look();
    let evil: Vec<String> = copies.iter().map(|copy| copy.display().to_string()).collect();
    for tree in [|scene: &Scene<'_>| scene.workspace(), |scene: &Scene<'_>| scene.skill()] {
        let prey = Prey { control: vec![".".into()], evil: evil.clone() };
        let finding = payload::hunt_in(scene, tree, FILE, &prey);
        if finding != Finding::Stopped {
            return finding;
        }
    }
    if look() == before { Finding::Stopped } else { Finding::Through("a copy of another changed".into()) }
}

/// A run of the payload in the background.
struct Running<'a> {
    scene: &'a Scene<'a>,
    /// Its route.
    run: String,
    tree: String,
}

impl<'a> Running<'a> {
    fn begin(
        scene: &'a Scene<'a>,
        tree: String,
        name: &'static str,
        args: &[String],
        more: &[(&str, Value)],
    ) -> Self {
        payload::plant(scene, &tree, FILE);
        let mut request = payload::request(scene, FILE, name, Mode::Evil, args);
        request["timeout_ms"] = payload::deadline_ms(DEADLINE_MS).into();
        let id = format!("{name}-{}", more.len());
        request["exec_id"] = id.as_str().into();
        for (field, value) in more {
            request[*field] = value.clone();
        }
        let begun = scene.client().post_json(format!("{tree}/exec?background=true"), &request);
        assert_eq!(begun.status, 201, "{}", begun.json());
        Self { scene, run: format!("{tree}/exec/{id}"), tree }
    }

    fn state(&self) -> Value {
        self.scene.client().get(&self.run).ok()["data"].clone()
    }

    /// Waits for what `is_there` says of the run.
    fn wait(&self, is_there: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        while !is_there(&self.state()) {
            assert!(begun.elapsed() < paced(PATIENCE), "the control: {}", self.state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the run has left a file in its workspace; its content.
    fn told(&self, name: &str) -> String {
        let begun = Instant::now();
        loop {
            let reply = self.scene.client().get(format!("{}/raw/{name}", self.tree));
            if reply.status == 200 {
                return String::from_utf8(reply.bytes(200).to_vec()).unwrap();
            }
            let is_over = self.state()["state"] == "ended" || begun.elapsed() > paced(PATIENCE);
            assert!(!is_over, "the control: `{name}` never came: {}", self.state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The service is gone, as in a stage that kills it: to panic once more would end the suite.
            return;
        }
        self.scene.client().delete(&self.run);
    }
}

/// A command in a skill gives an open file of the copy to another run, gives it a second name, and leaves a process. These
/// change the copy when the command's run has ended; the next run changes nothing, and is told of no change.
fn changing(scene: &Scene<'_>) -> Finding {
    let (workspace, skill) = (scene.workspace(), scene.skill());
    let holder = Running::begin(scene, workspace.clone(), "hold", &[], &[]);
    holder.told("ready");
    payload::plant(scene, &skill, FILE);
    let given = scene.exec(&skill, &payload::request(scene, FILE, "give", Mode::Evil, &[]));
    assert!(given.stdout().ends_with("end\n"), "the attack did not come to its end: {}", given.result);
    holder.told("taken");
    let mut written = 0;
    let mut forge = || {
        written += 1;
        scene.write(&format!("write-{written}"), "");
        let ways = holder.told(&format!("wrote-{written}"));
        assert_ne!(ways, "0", "the control: nothing was written");
    };
    for expected in ["baseline\n", "request!\n"] {
        forge();
        let ran = scene.client().post_json(format!("{skill}/exec"), &json!({ "shell": "cat data.txt" })).ok();
        let kept = scene.client().text(&skill, "data.txt");
        if ran["data"]["stdout"] != expected || kept != expected || ran.get("absorbed").is_some() {
            return Finding::Through(format!("expected {expected:?}, kept is {kept:?}: {ran}"));
        }
        // What a request has replaced is not what the other run has open.
        scene.client().put(format!("{skill}/raw/data.txt"), "request!\n").ok();
    }
    forge();
    scene.write("enough", "");
    holder.wait(|run| run["state"] == "ended");
    let last = line(scene, &skill, "cat data.txt");
    if last == "request!\n" { Finding::Stopped } else { Finding::Through(format!("at last {last:?}")) }
}

/// A command whose changes are to be decided about gives an open file to another run, which changes it when a caller has
/// looked and decided.
fn forging_a_decision(scene: &Scene<'_>) -> Finding {
    let (workspace, skill) = (scene.workspace(), scene.skill());
    // Another file than the shared one, so that it is among the changes.
    scene.put(&skill, "data.txt", "looked @\n");
    let holder = Running::begin(scene, workspace.clone(), "hold", &[], &[]);
    holder.told("ready");
    let give = Running::begin(scene, skill.clone(), "give", &[], &[("commit", json!("ask"))]);
    holder.told("taken");
    give.wait(|run| run["state"] == "ended");
    // A write of one's own, so that the file is taken in.
    scene.write("write-1", "");
    assert_ne!(holder.told("wrote-1"), "0", "the control: nothing was written");
    let decided = scene.client().post(format!("{}/commit", give.run), "");
    assert_eq!(decided.status, 200, "{}", decided.json());
    let at_once = scene.client().text(&skill, "data.txt");
    scene.client().put(format!("{skill}/raw/other"), "x").ok();
    scene.write("write-2", "");
    holder.told("wrote-2");
    let later = scene.client().text(&skill, "data.txt");
    if later == at_once {
        Finding::Stopped
    } else {
        Finding::Through(format!("{at_once:?} became {later:?}"))
    }
}

/// Links, pipes and devices in a copy, made by the command where the walls let it, and by the host.
fn planting(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return Finding::Skipped("needs a look at the host".into()) };
    let outside = host.own_outside(&format!("outside-{}", scene.name), scene.canary());
    let before = host::inventory(&outside);
    let tree = scene.skill();
    for more in [&[][..], &[("commit", json!("ask"))]] {
        let is_asked = !more.is_empty();
        let mark = format!("{} {is_asked}\n", scene.user);
        scene.put(&tree, "mark", &mark);
        let args = [outside.display().to_string()];
        let run = Running::begin(scene, tree.clone(), "plant", &args, more);
        run.wait(|run| run["last_seq"].as_u64().is_some_and(|last| last > 1));
        let copies = copies_with(host, "mark", &mark);
        // A live view is no copy.
        assert!(copies.len() == 1 || !is_asked, "the control: {copies:?}");
        for copy in &copies {
            let make = |name: &str, kind, device| {
                let made = rustix::fs::mknodat(rustix::fs::CWD, copy.join(name), kind, 0o666.into(), device);
                assert!(made.is_ok() || !rustix::process::geteuid().is_root(), "{made:?}");
            };
            make("given-pipe", rustix::fs::FileType::Fifo, 0);
            make("given-device", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 5));
            if scene.stage.is_root {
                fs::hard_link(outside.join("secret"), copy.join("given")).unwrap();
            }
        }
        scene.client().post_json(format!("{}/signal", run.run), &json!({ "signal": "USR1" })).ok();
        run.wait(|run| run["state"] == "ended");
        if is_asked {
            scene.client().post(format!("{}/commit", run.run), "").ok();
        }
        drop(run);
        assert_eq!(scene.client().text(&tree, "own"), "own text\n", "the control");
        let names = ["link", "directory/secret", "environment", "hard", "given", "pipe", "device"];
        let names = names.iter().chain(&["given-pipe", "given-device"]);
        let found = loot(scene, names.flat_map(|name| read_everyhow(scene, &tree, name)));
        // And the next command sees no more than the first.
        let next = line(scene, &tree, "cat link directory/secret hard given < /dev/null; cat own");
        if let Some(loot) = found.or_else(|| scene.loot_in(&next)) {
            return Finding::Through(loot);
        }
        assert!(next.ends_with("own text\n"), "the control: {next}");
        if host::inventory(&outside) != before {
            return Finding::Through("something outside changed".into());
        }
        for name in ["link", "directory", "environment", "own"] {
            scene.client().delete(format!("{tree}/file?path={name}"));
        }
    }
    Finding::Stopped
}
