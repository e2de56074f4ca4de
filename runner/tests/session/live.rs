//! Runs and changes across connections.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runner::{Runs, Session};
use sandbox::wire::{Feature, Register};
use sandbox::{
    ErrorKind, ExecSpec, Link, LiveSpec, NoneOptions, NoneSandbox, RemoteSandbox, Root, Sandbox, SandboxExt,
    UserId,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(60);
const FEATURES: [Feature; 2] = [Feature::Exact, Feature::Live];

/// A machine whose connections come and go.
struct Machine {
    around: TempDir,
    runs: Runs,
    user: UserId,
    workspace: sandbox::SandboxPath,
}

/// One connection, spoken by hand.
struct Peer {
    session: Session,
    frames: mpsc::Receiver<String>,
    /// Frames that came before an answer that was waited for.
    before: VecDeque<Value>,
}

impl Machine {
    async fn new(alone_max: Duration) -> Self {
        let around = tempfile::tempdir().unwrap();
        let sandbox = NoneSandbox::open(NoneOptions::new(Root::Shared(around.path().join("w")))).unwrap();
        let user = UserId::parse("u").unwrap();
        let workspace = sandbox.workspace(&user).await.unwrap();
        let runs = Runs::kept_for(Arc::new(sandbox), user.clone(), alone_max);
        Self { around, runs, user, workspace }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.around.path().join("w").join(below)
    }

    fn session(&self, outgoing: mpsc::Sender<String>) -> Session {
        Session::new(self.runs.clone(), self.workspace.clone(), &FEATURES, outgoing)
    }

    fn connect(&self) -> Peer {
        let (outgoing, frames) = mpsc::channel(64);
        Peer { session: self.session(outgoing), frames, before: VecDeque::new() }
    }

    /// A connection of a service, and the frames that it wants to send.
    fn link(&self, instance: &str) -> (Arc<Link>, mpsc::Receiver<sandbox::Outgoing>) {
        let register = Register {
            user_id: "u".to_owned(),
            workspace: self.workspace.to_string(),
            instance: instance.to_owned(),
            ..Register::default()
        };
        Link::new(self.user.clone(), &register, &FEATURES).unwrap()
    }

    /// Carries frames between a service and this machine until the link ends; of the answers, none when `is_deaf`.
    fn carry(&self, link: Arc<Link>, mut asked: mpsc::Receiver<sandbox::Outgoing>, is_deaf: bool) {
        let (outgoing, mut answers) = mpsc::channel(64);
        let session = self.session(outgoing);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    Some(frame) = asked.recv() => session.receive(&frame.text).await,
                    Some(text) = answers.recv() => {
                        if is_deaf {
                            link.end();
                            return session.close().await;
                        }
                        link.receive(&text);
                    }
                }
            }
        });
    }
}

impl Peer {
    async fn send(&self, id: Option<&str>, kind: &str, body: Value) {
        let frame = json!({ "id": id, "type": kind, "user_id": "u", "body": body });
        self.session.receive(&frame.to_string()).await;
    }

    async fn next(&mut self) -> Value {
        match self.before.pop_front() {
            Some(frame) => frame,
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Value {
        let text = tokio::time::timeout(PATIENCE, self.frames.recv()).await.expect("a frame in time");
        serde_json::from_str(&text.expect("an open session")).unwrap()
    }

    /// Asks, and gives the answer; events that come before it are the next ones.
    async fn ask(&mut self, kind: &str, body: Value) -> Value {
        self.send(Some("q"), kind, body).await;
        loop {
            let frame = self.receive().await;
            if frame["id"] == "q" {
                return frame;
            }
            self.before.push_back(frame);
        }
    }

    async fn begin(&mut self, run: &str, script: &str) -> Value {
        self.ask("begin", json!({ "run": run, "command": script, "shell": true, "stdin_open": true })).await
    }
}

fn base64(text: &Value) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap()).unwrap()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_begun_twice_begins_once() {
    let machine = Machine::new(PATIENCE).await;
    let mut peer = machine.connect();
    let script = "echo begun >> times; cat; exit 4";
    assert_eq!(peer.begin("one", script).await["type"], "ok");
    peer.session.close().await;
    let mut peer = machine.connect();
    assert_eq!(peer.begin("one", script).await["type"], "ok");
    peer.send(None, "input", json!({ "run": "one", "at": 0, "data": "aGkK", "end": true })).await;
    let (output, numbers, last) = {
        // The answer to the input, without an id, may come at any place.
        let mut output = Vec::new();
        let (mut numbers, mut last) = (Vec::new(), Value::Null);
        while last.is_null() {
            let frame = peer.next().await;
            match frame["type"].as_str().unwrap() {
                "run_output" => output.extend(base64(&frame["body"]["data"])),
                "run_end" => last = frame.clone(),
                _ => continue,
            }
            numbers.push(frame["body"]["seq"].as_u64().unwrap());
        }
        (output, numbers, last)
    };
    assert_eq!(
        (&*output, numbers, &last["body"]["result"]["exit_code"]),
        (&b"hi\n"[..], vec![1, 2], &json!(4))
    );
    assert_eq!(std::fs::read_to_string(machine.path("times")).unwrap(), "begun\n");
    peer.send(None, "ack", json!({ "run": "one", "seq": 2 })).await;
    until("it is forgotten once its end has come", || machine.runs.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_was_taken_is_passed_over_and_none_is_left_out() {
    let machine = Machine::new(PATIENCE).await;
    let mut peer = machine.connect();
    peer.begin("in", "cat").await;
    // "abc", "cd" of which "c" was taken, the same again, a gap, and the end twice.
    for (at, data, end, answer) in [
        (0, "YWJj", false, "ok"),
        (2, "Y2Q=", false, "ok"),
        (2, "Y2Q=", false, "ok"),
        (5, "ZQ==", false, "error"),
        (4, "", true, "ok"),
        (4, "", true, "ok"),
    ] {
        let told = peer.ask("input", json!({ "run": "in", "at": at, "data": data, "end": end })).await;
        assert_eq!(told["type"], answer, "{at} {told}");
    }
    peer.session.close().await;
    let mut peer = machine.connect();
    peer.send(None, "attach", json!({ "run": "in", "after": 0 })).await;
    let mut output = Vec::new();
    loop {
        let frame = peer.next().await;
        match frame["type"].as_str().unwrap() {
            "run_output" => output.extend(base64(&frame["body"]["data"])),
            "run_end" => break,
            _ => {}
        }
    }
    assert_eq!(output, b"abcd");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_sixteen_events_come_that_are_not_acknowledged() {
    let machine = Machine::new(PATIENCE).await;
    let mut peer = machine.connect();
    let script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i; sleep 0.01; done";
    assert_eq!(peer.begin("much", script).await["type"], "ok");
    for number in 1..=16 {
        assert_eq!(peer.next().await["body"]["seq"], number);
    }
    let more = tokio::time::timeout(Duration::from_secs(1), peer.receive()).await;
    assert!(more.is_err(), "{more:?}");
    // Elsewhere they come again, behind what has come, and the rest once there is room.
    let mut other = machine.connect();
    let attached = other.ask("attach", json!({ "run": "much", "after": 3 })).await;
    assert_eq!(attached["type"], "ok");
    other.send(None, "attach", json!({ "run": "much", "after": 3 })).await;
    let mut output = Vec::new();
    let mut last = 3;
    loop {
        let frame = other.next().await;
        let (kind, body) = (frame["type"].as_str().unwrap(), &frame["body"]);
        if kind == "ok" || body["seq"].as_u64().unwrap() <= last {
            continue;
        }
        assert_eq!(body["seq"], last + 1);
        last += 1;
        other.send(None, "ack", json!({ "run": "much", "seq": last })).await;
        match kind {
            "run_end" => break,
            _ => output.extend(base64(&body["data"])),
        }
    }
    let text = String::from_utf8(output).unwrap();
    assert!(text.starts_with("4\n") && text.ends_with("39\n40\n"), "{text}");
    until("it is forgotten once its end has come", || machine.runs.is_empty()).await;
    let beyond = other.ask("attach", json!({ "run": "much", "after": 1 })).await;
    assert_eq!(beyond["body"]["code"], "ENOENT", "{beyond}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_service_is_killed_after_its_time() {
    let machine = Machine::new(Duration::from_millis(300)).await;
    let mut peer = machine.connect();
    peer.begin("alone", "while :; do echo tick >> ticks; sleep 0.02; done").await;
    until("it runs", || machine.path("ticks").exists()).await;
    assert_eq!(machine.runs.len(), 1);
    peer.session.close().await;
    drop(peer.frames);
    until("it is killed", || machine.runs.is_empty()).await;
    let ticks = || std::fs::read(machine.path("ticks")).unwrap().len();
    until("its processes are gone", || {
        let before = ticks();
        std::thread::sleep(Duration::from_millis(200));
        ticks() == before
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_killed_and_its_name_means_nothing_then() {
    let machine = Machine::new(PATIENCE).await;
    let mut peer = machine.connect();
    peer.begin("kill", "sleep 600").await;
    peer.send(None, "kill", json!({ "run": "kill" })).await;
    until("it is gone", || machine.runs.is_empty()).await;
    for (kind, body) in [
        ("attach", json!({ "run": "kill", "after": 0 })),
        ("input", json!({ "run": "kill", "at": 0, "data": "" })),
    ] {
        assert_eq!(peer.ask(kind, body).await["body"]["code"], "ENOENT");
    }
    for kind in ["signal", "resize", "ack", "kill"] {
        let body = json!({ "run": "kill", "signal": "SIGINT", "rows": 1, "cols": 1, "seq": 9 });
        peer.send(None, kind, body).await;
    }
    // Names that are none, and too many runs.
    assert_eq!(peer.begin("", "true").await["body"]["code"], "EINVAL");
    assert_eq!(peer.begin(&"x".repeat(65), "true").await["body"]["code"], "EINVAL");
    for number in 0..64 {
        let begun = peer.begin(&format!("run {number}"), "sleep 600").await;
        assert_eq!(begun["type"], "ok", "{number} {begun}");
    }
    assert_eq!(peer.begin("one more", "true").await["body"]["code"], "EBUSY");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_agreed_takes_part_in_commands() {
    let machine = Machine::new(PATIENCE).await;
    let (outgoing, frames) = mpsc::channel(16);
    let session = Session::new(machine.runs.clone(), machine.workspace.clone(), &[Feature::Exact], outgoing);
    let mut peer = Peer { session, frames, before: VecDeque::new() };
    let told = peer.begin("one", "true").await;
    assert_eq!(told["body"]["message"], "unknown request type: begin");
    assert!(machine.runs.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_answer_was_lost_is_asked_about_and_not_done_again() {
    let machine = Machine::new(PATIENCE).await;
    let remote = Arc::new(RemoteSandbox::new());
    let path = machine.workspace.join("once").unwrap();
    std::fs::write(machine.path("once"), "x").unwrap();
    // Its answers never come, and with the first of them the connection ends.
    let (link, asked) = machine.link("same");
    remote.attach(Arc::clone(&link));
    machine.carry(link, asked, true);
    let (asking, user) = (Arc::clone(&remote), machine.user.clone());
    let removing = tokio::spawn(async move { asking.remove(&user, &path).await });
    until("it is removed", || !machine.path("once").exists()).await;
    let (link, asked) = machine.link("same");
    machine.carry(Arc::clone(&link), asked, false);
    remote.attach(link);
    // Asked for again, there would be nothing to remove.
    removing.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_never_came_is_asked_for_again() {
    let machine = Machine::new(PATIENCE).await;
    let remote = Arc::new(RemoteSandbox::new());
    let path = machine.workspace.join("new").unwrap();
    let (link, mut asked) = machine.link("same");
    remote.attach(Arc::clone(&link));
    let (asking, user) = (Arc::clone(&remote), machine.user.clone());
    let writing = tokio::spawn(async move { asking.write(&user, &path, "text".into()).await });
    asked.recv().await.unwrap();
    link.end();
    let (link, asked) = machine.link("same");
    machine.carry(Arc::clone(&link), asked, false);
    remote.attach(link);
    writing.await.unwrap().unwrap();
    assert_eq!(std::fs::read_to_string(machine.path("new")).unwrap(), "text");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_of_the_runner_is_not_asked_about_changes() {
    let machine = Machine::new(PATIENCE).await;
    let remote = Arc::new(RemoteSandbox::new());
    let path = machine.workspace.join("never").unwrap();
    let (link, mut asked) = machine.link("first");
    remote.attach(Arc::clone(&link));
    let (asking, user) = (Arc::clone(&remote), machine.user.clone());
    let writing = tokio::spawn(async move { asking.write(&user, &path, "text".into()).await });
    asked.recv().await.unwrap();
    link.end();
    let (link, asked) = machine.link("second");
    machine.carry(Arc::clone(&link), asked, false);
    remote.attach(link);
    assert_eq!(writing.await.unwrap().unwrap_err().kind(), ErrorKind::Disconnected);
    assert!(!machine.path("never").exists());
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_comes_and_goes_without_end_is_given_up() {
    let machine = Machine::new(PATIENCE).await;
    let remote = Arc::new(RemoteSandbox::new());
    let (link, mut asked) = machine.link("same");
    remote.attach(Arc::clone(&link));
    let (asking, user) = (Arc::clone(&remote), machine.user.clone());
    let begun = tokio::spawn(async move {
        let command = ExecSpec { timeout: Some(Duration::from_secs(1)), ..ExecSpec::shell("sleep 600") };
        asking.begin(&user, LiveSpec { command, stdin_open: false, terminal: None }).await
    });
    let id = |text: &str| serde_json::from_str::<Value>(text).unwrap()["id"].clone();
    let asked_first = id(&asked.recv().await.unwrap().text);
    link.receive(&json!({ "id": asked_first, "type": "ok" }).to_string());
    let mut run = begun.await.unwrap().unwrap();
    let mut link = link;
    // Every connection of it ends when it is asked to go on.
    let flapping = tokio::spawn(async move {
        loop {
            link.end();
            let (next, mut asked) = machine.link("same");
            remote.attach(Arc::clone(&next));
            let _asked = tokio::time::timeout(Duration::from_secs(1), asked.recv()).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            link = next;
        }
    });
    let ended = tokio::time::timeout(Duration::from_secs(3600), run.end.wait()).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Disconnected);
    flapping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_comes_through_is_given_up() {
    let machine = Machine::new(PATIENCE).await;
    let remote = Arc::new(RemoteSandbox::new());
    let (link, asked) = machine.link("same");
    remote.attach(Arc::clone(&link));
    let flapping = {
        let (remote, user) = (Arc::clone(&remote), machine.user.clone());
        let links = move |instance: &str| {
            let register = Register {
                user_id: "u".to_owned(),
                workspace: "/w".to_owned(),
                instance: instance.to_owned(),
                ..Register::default()
            };
            Link::new(user.clone(), &register, &FEATURES).unwrap()
        };
        tokio::spawn(async move {
            let (mut link, mut asked) = (link, asked);
            loop {
                // Each connection ends with the first thing that is asked on it.
                let _asked = asked.recv().await;
                link.end();
                tokio::time::sleep(Duration::from_secs(1)).await;
                (link, asked) = links("same");
                remote.attach(Arc::clone(&link));
            }
        })
    };
    let (user, path) = (machine.user.clone(), sandbox::SandboxPath::parse("/w/file").unwrap());
    let patient = |what: &str, failed: Option<ErrorKind>| {
        assert_eq!(failed, Some(ErrorKind::Disconnected), "{what}");
    };
    let kind = |error: sandbox::Error| error.kind();
    let longest = Duration::from_secs(120);
    let ended = tokio::time::timeout(longest, remote.exec(&user, ExecSpec::shell("true"))).await;
    patient("exec", ended.expect("exec ends").err().map(kind));
    let ended = tokio::time::timeout(longest, remote.stat(&user, &path)).await;
    patient("stat", ended.expect("stat ends").err().map(kind));
    let ended = tokio::time::timeout(longest, remote.read(&user, &path)).await;
    patient("read", ended.expect("read ends").err().map(kind));
    let ended = tokio::time::timeout(longest, remote.write(&user, &path, "x".into())).await;
    patient("write", ended.expect("write ends").err().map(kind));
    flapping.abort();
}
