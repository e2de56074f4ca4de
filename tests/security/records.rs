//! Files that users delete, reset or leave behind, made up as the service's own records, and a restart that might
//! believe them.
//!
//! Each attack has a service of its own on a data directory of its own, at the tier of its stage and as the same user,
//! because it ends and starts it. What is made up says, in the words of the layout that once believed it, that a file of
//! the attacker's goes over the victim's, into the baseline, over the signing key and over the audit log.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::attack::Attack;
use crate::client::Client;
use crate::expectation::Finding;
use crate::host;
use crate::scene::{AGENT, SKILL, Scene, VICTIM, skill_of, workspace_of};
use crate::zip::skill_zip;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("leaving_a_record_in_a_skill_that_is_reset_under_a_run", in_a_reset_skill).waiting(),
    Attack::driven("leaving_a_record_in_a_deletion_that_is_cut", in_a_cut_deletion).waiting(),
    Attack::driven("filling_a_deleted_directory_with_a_record", in_a_refilled_directory).waiting(),
    Attack::driven("keeping_the_room_of_a_deleted_directory", past_the_quota).waiting(),
    Attack::driven("closing_the_directories_of_the_service", closing_directories),
];

pub(crate) const ATTACKER: &str = "attacker";
/// Longer than anything here takes on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// Files of a directory whose removal takes long enough to be cut.
const MANY: usize = 6000;

/// Makes up a record in a directory, by a descriptor of it: items, and a journal that says where they go.
const FORGE: &str = r#"
import json, os, sys, time

PLACES = [
    ("sandbox/victim/demo", "secret"),
    ("skill/baseline/demo/shared", "data.txt"),
    (".filesecbox/keys", "signing"),
    (".filesecbox/audit", "0000000000000001.jsonl"),
]

def put(fd, name, text):
    out = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644, dir_fd=fd)
    os.write(out, text.encode())
    inode = os.fstat(out).st_ino
    os.close(out)
    return inode

def forge(fd):
    steps = []
    for number, (into, name) in enumerate(PLACES):
        inode = put(fd, str(number), "forged\n")
        steps.append({"inode": inode, "into": into, "name": name, "keep_replaced_in": None})
    put(fd, "journal", json.dumps(steps))

def told(name):
    with open(name, "w") as out:
        out.write("x")
"#;

/// A service that dies and starts again.
pub(crate) struct Mortal {
    pub(crate) client: Client,
    root: PathBuf,
    uid: u32,
    program: PathBuf,
    config: PathBuf,
    child: Child,
    _stdout: BufReader<ChildStdout>,
}

/// The paths that must be as they were, with their content.
type State = Vec<(PathBuf, Vec<u8>)>;

impl Mortal {
    /// A service as that of the scene's stage, with a victim; `None` where this suite cannot start one.
    pub(crate) fn of(scene: &Scene<'_>, limits: &str) -> Option<Self> {
        let host = scene.host()?;
        let base = host.root.parent().unwrap();
        let root = base.join(scene.name);
        let _ = fs::remove_dir_all(&root);
        let (config, tier) =
            (host.outside.parent().unwrap().join(format!("{}.toml", scene.name)), scene.stage.tier);
        fs::write(&config, format!("[isolation]\nminimum = \"{tier}\"\nmaximum = \"{tier}\"\n{limits}"))
            .unwrap();
        fs::set_permissions(&config, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let (child, stdout, client) = start(host.uid, &host.program(), &config, &root);
        let mortal =
            Self { client, root, uid: host.uid, program: host.program(), config, child, _stdout: stdout };
        let archive = skill_zip(SKILL, &[("data.txt", "baseline\n")]);
        mortal.client.upload(&format!("/v1/skills/{VICTIM}/{AGENT}"), "baseline", &archive);
        mortal.client.put(format!("{}/raw/secret", workspace_of(VICTIM)), "the victim's\n").ok();
        Some(mortal)
    }

    /// Ends the service by `signal` and starts it again.
    fn restart(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.start_again();
    }

    /// Starts the service again, which is dying.
    fn start_again(&mut self) {
        self.child.wait().unwrap();
        let (child, stdout, client) = start(self.uid, &self.program, &self.config, &self.root);
        (self.child, self._stdout, self.client) = (child, stdout, client);
    }

    /// The prey of the attacks.
    fn state(&self) -> State {
        let at = [
            format!("sandbox/{VICTIM}/{AGENT}/secret"),
            format!("skill/baseline/{AGENT}/{SKILL}/data.txt"),
            ".filesecbox/keys/signing".to_owned(),
            ".filesecbox/audit/0000000000000001.jsonl".to_owned(),
        ];
        at.iter().map(|at| (self.root.join(at), fs::read(self.root.join(at)).unwrap())).collect()
    }

    /// Judges what became of `before`. The audit log grows, and nothing else changes.
    fn judge(&self, before: &State) -> Finding {
        for (path, text) in before {
            if !fs::read(path).is_ok_and(|now| now.starts_with(text)) {
                return Finding::Through(format!("{} is another", path.display()));
            }
        }
        // The control: the service works, and so do the attacker's trees.
        self.client.put(format!("{}/raw/after", workspace_of(ATTACKER)), "there").ok();
        Finding::Stopped
    }

    /// Has the attacker run `script` after [`FORGE`] in the background of `tree`.
    fn begin(&self, tree: &str, script: &str) {
        self.client.put(format!("{tree}/raw/forge.py"), format!("{FORGE}{script}")).ok();
        let request = json!({ "command": "python3", "args": ["forge.py"], "exec_id": "forge" });
        let answer = self.client.post_json(format!("{tree}/exec?background=true"), &request);
        assert_eq!(answer.status, 201, "{}", answer.json());
    }

    /// Waits until one of these files is in `tree`, or the run there has ended; which it was.
    fn wait_for(&self, tree: &str, names: &[&'static str]) -> Option<&'static str> {
        let begun = Instant::now();
        loop {
            let has = |name: &&&str| self.client.get(format!("{tree}/stat?path={name}")).status == 200;
            if let Some(name) = names.iter().find(has) {
                return Some(name);
            }
            let run = self.client.get(format!("{tree}/exec/forge")).json();
            if run["data"]["state"] == "ended" || was_stopped(&run) {
                return names.iter().find(has).copied();
            }
            assert!(begun.elapsed() < PATIENCE, "none of {names:?}: {run}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until all that was thrown away has gone, but for the empty directories that it lay in.
    fn wait_for_empty_trash(&self) {
        let begun = Instant::now();
        let trash = self.root.join(".filesecbox/trash");
        let left = || {
            let bins = fs::read_dir(&trash).into_iter().flatten().filter_map(Result::ok);
            bins.filter(|bin| fs::read_dir(bin.path()).is_ok_and(|mut items| items.next().is_some())).count()
        };
        while left() > 0 {
            assert!(begun.elapsed() < PATIENCE, "what was deleted stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn start(uid: u32, program: &Path, config: &Path, root: &Path) -> (Child, BufReader<ChildStdout>, Client) {
    let mut command = host::as_uid(uid, program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--durability", "relaxed", "--root"]).arg(root);
    command.arg("--config").arg(config).env("FILESECBOX_LOG", "error").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let log = root.with_extension("log");
    command.stderr(fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("filesecbox listening on http://");
    let address: SocketAddr = address
        .unwrap_or_else(|| panic!("no service: {}", fs::read_to_string(&log).unwrap()))
        .parse()
        .unwrap();
    let client = Client { address, root: root.to_str().unwrap().to_owned(), token: None };
    (child, stdout, client)
}

pub(crate) fn nothing_to_start() -> Finding {
    Finding::Skipped("it takes a service that can be ended".into())
}

/// A run in a skill keeps its view, and what it wrote there, when the skill is reset; then the service dies.
fn in_a_reset_skill(scene: &Scene<'_>) -> Finding {
    let Some(mut mortal) = Mortal::of(scene, "") else { return nothing_to_start() };
    let tree = skill_of(ATTACKER);
    mortal.begin(&tree, "forge(os.open('.', os.O_RDONLY))\nprint('held', flush=True)\ntime.sleep(600)\n");
    // The second event is the line that says that all is there.
    let begun = Instant::now();
    let run = || mortal.client.get(format!("{tree}/exec/forge")).json();
    while run()["data"]["last_seq"].as_u64().is_none_or(|last| last < 2) {
        assert!(begun.elapsed() < PATIENCE, "{}", run());
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = mortal.state();
    mortal.client.post(format!("{tree}/reset"), "").ok();
    mortal.restart(Signal::KILL);
    let found = mortal.judge(&before);
    let left: Value = mortal.client.get(format!("{tree}/stat?path=journal")).json();
    assert_eq!(left["status"], "error", "the reset is undone: {left}");
    found
}

/// The removal of a large directory is cut by the death of the service.
fn in_a_cut_deletion(scene: &Scene<'_>) -> Finding {
    let Some(mut mortal) = Mortal::of(scene, "") else { return nothing_to_start() };
    let tree = workspace_of(ATTACKER);
    let script = format!(
        "os.mkdir('d')\nfd = os.open('d', os.O_RDONLY)\nfor number in range({MANY}): put(fd, 'f%d' % number, '')\n\
         forge(fd)\ntold('made')\n"
    );
    mortal.begin(&tree, &script);
    assert_eq!(mortal.wait_for(&tree, &["made"]), Some("made"));
    let before = mortal.state();
    let at = mortal.root.join(format!("sandbox/{ATTACKER}/{AGENT}/d"));
    // The client does not read the answer.
    let mut connection = mortal.client.connect();
    let address = mortal.client.address;
    let request = format!("DELETE {tree}/file?path=d&recursive=true HTTP/1.1\r\nHost: {address}\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let begun = Instant::now();
    while at.exists() {
        assert!(begun.elapsed() < PATIENCE, "nothing is deleted");
    }
    kill_process(Pid::from_child(&mortal.child), Signal::KILL).unwrap();
    mortal.start_again();
    let found = mortal.judge(&before);
    assert_eq!(mortal.client.get(format!("{tree}/stat?path=d")).status, 404, "the deletion is undone");
    mortal.wait_for_empty_trash();
    found
}

/// A run keeps a descriptor of a directory that is deleted and goes on making files through it; then the service is
/// restarted as always.
fn in_a_refilled_directory(scene: &Scene<'_>) -> Finding {
    let Some(mut mortal) = Mortal::of(scene, "") else { return nothing_to_start() };
    let tree = workspace_of(ATTACKER);
    let before = mortal.state();
    fill(&mortal, &tree, "forge(fd)");
    mortal.restart(Signal::TERM);
    let found = mortal.judge(&before);
    mortal.wait_for_empty_trash();
    found
}

/// The same, filling what was deleted: it counts as long as it is there.
fn past_the_quota(scene: &Scene<'_>) -> Finding {
    const FILES: u64 = 2000;
    let Some(mortal) = Mortal::of(scene, &format!("[limits.disk]\nfiles = {FILES}\n")) else {
        return nothing_to_start();
    };
    let tree = workspace_of(ATTACKER);
    let script = format!("for number in range({}): put(fd, 'g%d' % number, '')", FILES * 4);
    // The most at any moment, beside a service that removes it.
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let look = || entries_below(&mortal.root.join(".filesecbox"), &["trash", "stage"]);
    let lying = std::thread::scope(|threads| {
        let looking = threads.spawn(|| {
            let mut most = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                most = most.max(look());
            }
            most.max(look())
        });
        // A failure ends the thread that looks, too: the suite would wait for it.
        let filled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fill(&mortal, &tree, &script)));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let most = looking.join().unwrap();
        filled.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        most
    });
    let found = if lying > FILES * 2 {
        Finding::Through(format!("{lying} files lie in what was deleted, of {FILES}"))
    } else {
        Finding::Stopped
    };
    mortal.wait_for_empty_trash();
    mortal.client.put(format!("{tree}/raw/after"), "there is room").ok();
    found
}

/// Something takes away the permissions of every directory that is the service's own. This suite does, because commands
/// may be kept from it in other ways; where commands have another user id than the service, nothing else could.
fn closing_directories(scene: &Scene<'_>) -> Finding {
    let Some(mut mortal) = Mortal::of(scene, "") else { return nothing_to_start() };
    let before = mortal.state();
    let own = || {
        let mut all = vec![mortal.root.clone()];
        for above in
            ["", "skill", "sandbox", "sandbox/victim", "skill/overlay", "skill/baseline", ".filesecbox"]
        {
            let below = fs::read_dir(mortal.root.join(above)).unwrap().filter_map(Result::ok);
            all.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        all
    };
    let close = |modes: u32| {
        for path in own() {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(modes)).unwrap();
        }
    };
    let served = |mortal: &Mortal| {
        let shared = skill_of(VICTIM);
        [
            mortal.client.get(format!("{}/raw/secret", workspace_of(VICTIM))).status,
            mortal.client.get(format!("{shared}/raw/data.txt")).status,
            mortal.client.put(format!("{shared}/raw/new.txt"), "new").status,
            mortal.client.delete(format!("{shared}/file?path=new.txt")).status,
            mortal.client.put(format!("{}/raw/new.txt", workspace_of("newcomer")), "new").status,
            mortal.client.get("/readyz").status,
        ]
    };
    for modes in [0o000, 0o500, 0o600] {
        close(modes);
        let statuses = served(&mortal);
        if statuses.iter().any(|status| status / 100 != 2) {
            return Finding::Through(format!("with mode {modes:o}, others got {statuses:?}"));
        }
    }
    close(0);
    mortal.restart(Signal::KILL);
    let statuses = served(&mortal);
    if statuses.iter().any(|status| status / 100 != 2) {
        return Finding::Through(format!("after a restart, others got {statuses:?}"));
    }
    mortal.judge(&before)
}

/// Whether the service stopped the run, as it does with one that goes on filling what was removed.
fn was_stopped(run: &Value) -> bool {
    run["code"] == "disconnected"
}

/// Deletes a directory of `tree` while processes go on filling it through descriptors, each with 200 files again and again, which
/// is no quota, however long the deletion takes; and then does `script` in it. Ends when that is done, or nothing can be made there any more.
fn fill(mortal: &Mortal, tree: &str, script: &str) {
    let script = format!(
        "os.mkdir('d')\nfd = os.open('d', os.O_RDONLY)\n\
         for process in range(3):\n    if os.fork() == 0: break\nelse: process = 3\n\
         told('held-%d' % process)\nnumber = 0\ngone = 0\n\
         while True:\n\
         \x20   number += 1\n\
         \x20   try:\n\
         \x20       put(fd, '%d-%d' % (process, number % 200), '')\n\
         \x20       gone = 0\n\
         \x20   except OSError as error:\n\
         \x20       gone += 1\n\
         \x20       if gone > 3: break\n\
         \x20   if process == 3 and number % 50 == 0 and not os.path.exists('present'):\n\
         \x20       try:\n\
         \x20           {script}\n\
         \x20           told('done')\n\
         \x20           time.sleep(600)\n\
         \x20       except OSError: pass\n\
         if process == 3: told('lost')\n\
         os._exit(0)\n"
    );
    mortal.client.put(format!("{tree}/raw/present"), "").ok();
    mortal.begin(tree, &script);
    for number in 0..4 {
        let name: &'static str = ["held-0", "held-1", "held-2", "held-3"][number];
        assert_eq!(mortal.wait_for(tree, &[name]), Some(name), "the control");
    }
    let deleted = mortal.client.delete(format!("{tree}/file?path=d&recursive=true"));
    assert_eq!(deleted.status, 200, "{}", deleted.json());
    // To remove a file is allowed also to one who has more than the quota by now.
    mortal.client.delete(format!("{tree}/file?path=present")).ok();
    let ended = mortal.wait_for(tree, &["done", "lost"]);
    let run = mortal.client.get(format!("{tree}/exec/forge")).json();
    // An error of the script would be no attack: the service kills a run that reaches what was deleted, or fills the disk.
    let is_killed = run["result"]["signal"] == "SIGKILL" || was_stopped(&run);
    assert!(ended.is_some() || is_killed, "the control: it was neither done nor stopped: {run}");
}

fn entries_below(own: &Path, names: &[&str]) -> u64 {
    fn count(dir: &Path) -> u64 {
        let Ok(entries) = fs::read_dir(dir) else { return 0 };
        entries.filter_map(Result::ok).map(|entry| 1 + count(&entry.path())).sum()
    }
    names.iter().map(|name| count(&own.join(name))).sum()
}
