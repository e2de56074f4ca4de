//! What only services of the second founding generation ask: processes with streams, terminals, background tasks, downloads. Rows that
//! were recorded from such a runner are answered as recorded, but for its defects.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::{Peer, code};

fn bytes(text: &Value) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap()).unwrap()
}

fn base64(text: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Asks, and passes over what is pushed before the answer.
async fn ask(peer: &mut Peer, kind: &str, body: Value) -> Value {
    peer.send("q", kind, body).await;
    loop {
        let frame = peer.next().await;
        if frame["id"] == "q" {
            return frame;
        }
    }
}

/// The bytes that were pushed of a stream, and its end.
async fn to_the_end(peer: &mut Peer, kind: &str, stream: &str) -> (Vec<u8>, Value) {
    let mut all = Vec::new();
    loop {
        let frame = peer.next().await;
        if frame["body"]["stream_id"] != stream || frame["id"] != Value::Null {
            continue;
        }
        match frame["type"].as_str().unwrap() {
            data if data == format!("{kind}_data") => all.extend(bytes(&frame["body"]["data"])),
            exit if exit == format!("{kind}_exit") => return (all, frame["body"].clone()),
            other => panic!("{other}"),
        }
    }
}

async fn status_until(peer: &mut Peer, task: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let told = ask(peer, "bg_status", json!({ "task_id": task })).await;
        assert_eq!(told["type"], "bg_output", "{told}");
        if holds(&told["body"]) {
            return told["body"].clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{told}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_streams_answers_as_recorded() {
    let mut peer = Peer::founding().await;
    let started =
        ask(&mut peer, "stdio_start", json!({ "stream_id": "s1", "command": "cat", "args": [] })).await;
    assert_eq!((&started["type"], &started["body"]), (&json!("ok"), &json!({ "stream_id": "s1" })));
    // Without an id and without an answer; the order is kept.
    for number in 0..500 {
        let data = base64(format!("{number}\n").as_bytes());
        let write =
            json!({ "type": "stdio_write", "user_id": "u", "body": { "stream_id": "s1", "data": data } });
        peer.session.receive(&write.to_string()).await;
    }
    let mut came = Vec::new();
    while !came.ends_with(b"499\n") {
        let frame = peer.next().await;
        assert_eq!((frame["type"].as_str(), &frame["id"]), (Some("stdio_data"), &Value::Null), "{frame}");
        came.extend(bytes(&frame["body"]["data"]));
    }
    let expected: String = (0..500).map(|number| format!("{number}\n")).collect();
    assert_eq!(String::from_utf8(came).unwrap(), expected);
    let closed = ask(&mut peer, "stdio_close", json!({ "stream_id": "s1" })).await;
    assert_eq!((&closed["type"], &closed["body"]), (&json!("ok"), &Value::Null));
    let (_, end) = to_the_end(&mut peer, "stdio", "s1").await;
    assert_eq!(end, json!({ "stream_id": "s1", "exit_code": 0 }));

    let missing = ask(&mut peer, "stdio_start", json!({ "stream_id": "s2", "command": "/no/such" })).await;
    assert_eq!(code(&missing), "EIO");
    let script = json!(["-c", "echo e >&2; exit 7"]);
    ask(&mut peer, "stdio_start", json!({ "stream_id": "s3", "command": "sh", "args": script })).await;
    assert_eq!(
        to_the_end(&mut peer, "stdio", "s3").await,
        (vec![], json!({ "stream_id": "s3", "exit_code": 7 }))
    );
    let unknown = ask(&mut peer, "stdio_close", json!({ "stream_id": "zz" })).await;
    assert_eq!((code(&unknown), &unknown["body"]["message"]), ("ENOENT", &json!("stream not found: zz")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_takes_input_and_sizes_which_the_recorded_runner_refused() {
    let mut peer = Peer::founding().await;
    let asked = json!({ "stream_id": "p1", "command": "sh", "cols": 80, "rows": 24 });
    assert_eq!(ask(&mut peer, "pty_create", asked).await["body"], json!({ "stream_id": "p1" }));
    let shown = async |peer: &mut Peer, typed: &str, until: &str| {
        let typed = json!({ "stream_id": "p1", "data": base64(typed.as_bytes()) });
        // Recorded services send an id with it, and await no answer.
        peer.send("typed", "pty_stdin", typed).await;
        let mut all = String::new();
        while !all.contains(until) {
            let frame = peer.next().await;
            assert_eq!(frame["type"], "pty_data", "{frame}");
            all += &String::from_utf8_lossy(&bytes(&frame["body"]["data"]));
        }
    };
    shown(&mut peer, "echo PTY$((1+1)); stty size\n", "24 80").await;
    peer.send("size", "pty_resize", json!({ "stream_id": "p1", "cols": 100, "rows": 30 })).await;
    shown(&mut peer, "stty size\n", "30 100").await;
    let begun = Instant::now();
    peer.send("q", "pty_close", json!({ "stream_id": "p1" })).await;
    let (_, end) = to_the_end(&mut peer, "pty", "p1").await;
    assert_eq!(end, json!({ "stream_id": "p1", "exit_code": -1 }));
    assert!(begun.elapsed() < Duration::from_secs(4), "the recorded runner took 5 s: {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_tells_its_output_so_far_and_how_it_ended() {
    let mut peer = Peer::founding().await;
    let script = "echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 4";
    let asked = json!({ "task_id": "t1", "command": script, "shell": true });
    let started = ask(&mut peer, "bg_exec", asked.clone()).await;
    assert_eq!((&started["type"], &started["body"]), (&json!("bg_started"), &json!({ "task_id": "t1" })));
    let running = status_until(&mut peer, "t1", |told| told["stdout"] == "one\n").await;
    assert_eq!(running, json!({ "task_id": "t1", "status": "running", "stdout": "one\n", "stderr": "" }));
    let again = ask(&mut peer, "bg_exec", asked).await;
    assert_eq!((code(&again), &again["body"]["message"]), ("EINVAL", &json!("duplicate task_id: t1")));
    std::fs::write(peer.path("go"), "").unwrap();
    let ended = status_until(&mut peer, "t1", |told| told["status"] != "running").await;
    let expected =
        json!({ "task_id": "t1", "status": "failed", "exit_code": 4, "stdout": "one\ntwo\n", "stderr": "" });
    assert_eq!(ended, expected);
    // One that has ended gives its name back; an exit code of 0 is left out.
    ask(&mut peer, "bg_exec", json!({ "task_id": "t1", "command": "echo dup", "shell": true })).await;
    let ended = status_until(&mut peer, "t1", |told| told["status"] != "running").await;
    assert_eq!(ended, json!({ "task_id": "t1", "status": "completed", "stdout": "dup\n", "stderr": "" }));
    let unnamed = ask(&mut peer, "bg_exec", json!({ "command": "echo", "shell": true })).await;
    assert_eq!((code(&unnamed), &unnamed["body"]["message"]), ("EINVAL", &json!("task_id required")));
    for kind in ["bg_status", "bg_kill"] {
        let unknown = ask(&mut peer, kind, json!({ "task_id": "zz" })).await;
        let message = json!(format!("{kind} failed: task zz not found"));
        assert_eq!((code(&unknown), &unknown["body"]["message"]), ("EIO", &message));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_killed_ends_with_its_descendants_and_is_told_so() {
    let mut peer = Peer::founding().await;
    let script = "(while :; do echo tick >> ticks; sleep 0.02; done) & until [ -s ticks ]; do sleep 0.02; done; echo on; wait";
    ask(&mut peer, "bg_exec", json!({ "task_id": "t2", "command": script, "shell": true })).await;
    status_until(&mut peer, "t2", |told| told["stdout"] == "on\n").await;
    assert_eq!(ask(&mut peer, "bg_kill", json!({ "task_id": "t2" })).await["type"], "ok");
    let told = ask(&mut peer, "bg_status", json!({ "task_id": "t2" })).await;
    assert_eq!(told["body"]["status"], "killed", "{told}");
    let (path, begun) = (peer.path("ticks"), Instant::now());
    loop {
        let before = std::fs::read(&path).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        if std::fs::read(&path).unwrap() == before {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "a descendant goes on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_outlive_their_connection_and_streams_end_with_it() {
    let machine = crate::support::Machine::new().await;
    let (outgoing, mut frames) = mpsc::channel(64);
    let session = machine.session(&[], outgoing);
    let frame = |kind: &str, body: Value| json!({ "id": "q", "type": kind, "body": body }).to_string();
    let next = async |frames: &mut mpsc::Receiver<String>| -> Value {
        serde_json::from_str(&frames.recv().await.unwrap()).unwrap()
    };
    let script = "until [ -e go ]; do sleep 0.02; done; echo late";
    session.receive(&frame("bg_exec", json!({ "task_id": "t", "command": script, "shell": true }))).await;
    assert_eq!(next(&mut frames).await["type"], "bg_started");
    let script = json!(["-c", "echo $$ > stream; exec sleep 300"]);
    session
        .receive(&frame("stdio_start", json!({ "stream_id": "s", "command": "sh", "args": script })))
        .await;
    assert_eq!(next(&mut frames).await["type"], "ok");
    let begun = Instant::now();
    let process = loop {
        let told = std::fs::read_to_string(machine.path("stream")).unwrap_or_default();
        if told.ends_with('\n') {
            break told.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    session.close().await;
    while std::path::Path::new("/proc")
        .join(&process)
        .join("fd")
        .read_dir()
        .is_ok_and(|mut fds| fds.next().is_some())
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "the process of the stream goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::write(machine.path("go"), "").unwrap();
    let (outgoing, mut frames) = mpsc::channel(64);
    let session = machine.session(&[], outgoing);
    loop {
        session.receive(&frame("bg_status", json!({ "task_id": "t" }))).await;
        let told = next(&mut frames).await;
        if told["body"]["status"] == "completed" {
            assert_eq!(told["body"]["stdout"], "late\n");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_does_not_read_is_given_no_more_than_is_kept() {
    let mut peer = Peer::founding().await;
    ask(&mut peer, "stdio_start", json!({ "stream_id": "s", "command": "sleep", "args": ["300"] })).await;
    let data = base64(&vec![b'x'; 4 << 20]);
    for _ in 0..6 {
        peer.session
            .receive(
                &json!({ "type": "stdio_write", "body": { "stream_id": "s", "data": data } }).to_string(),
            )
            .await;
    }
    let (_, end) = to_the_end(&mut peer, "stdio", "s").await;
    assert_eq!(end["exit_code"], -1);
    assert!(end["error"].as_str().unwrap().contains("of input waited"), "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_tasks_are_bounded_and_their_names_are() {
    let mut peer = Peer::founding().await;
    let sleep = |name: String| json!({ "stream_id": name, "command": "sleep", "args": ["300"] });
    for number in 0..64 {
        assert_eq!(ask(&mut peer, "stdio_start", sleep(number.to_string())).await["type"], "ok");
    }
    assert_eq!(code(&ask(&mut peer, "stdio_start", sleep("more".into())).await), "EBUSY");
    for name in ["", "0", &"n".repeat(65)] {
        assert_eq!(code(&ask(&mut peer, "stdio_start", sleep(name.into())).await), "EINVAL", "{name}");
    }
    // A stream of the other kind is none.
    assert_eq!(code(&ask(&mut peer, "pty_close", json!({ "stream_id": "1" })).await), "ENOENT");
    let sleep = |name: String| json!({ "task_id": name, "args": ["sleep", "300"] });
    for number in 0..64 {
        assert_eq!(ask(&mut peer, "bg_exec", sleep(number.to_string())).await["type"], "bg_started");
    }
    assert_eq!(code(&ask(&mut peer, "bg_exec", sleep("more".into())).await), "EBUSY");
    ask(&mut peer, "bg_kill", json!({ "task_id": "7" })).await;
    // The one that has ended is forgotten for it.
    assert_eq!(ask(&mut peer, "bg_exec", sleep("more".into())).await["type"], "bg_started");
    assert_eq!(code(&ask(&mut peer, "bg_status", json!({ "task_id": "7" })).await), "EIO");
}

/// A web server that answers each request by its path.
fn web(answers: Vec<(&'static str, Vec<u8>)>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut piece = [0; 1024];
            while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                let Ok(read @ 1..) = stream.read(&mut piece) else { break };
                head.extend_from_slice(&piece[..read]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            assert!(!head.to_lowercase().contains("authorization"), "{head}");
            let path = head.split(' ').nth(1).unwrap_or_default();
            let answer = answers.iter().find(|(at, _)| *at == path).map(|(_, answer)| answer.clone());
            let _gone = stream.write_all(
                &answer.unwrap_or(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec()),
            );
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_is_whole_in_the_workspace_or_not_at_all() {
    let text = |text: &str| text.as_bytes().to_vec();
    let port = web(vec![
        ("/file", text("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")),
        ("/moved", text("HTTP/1.1 302 Found\r\nlocation: /file\r\ncontent-length: 0\r\n\r\n")),
        ("/round", text("HTTP/1.1 302 Found\r\nlocation: /round\r\ncontent-length: 0\r\n\r\n")),
        ("/huge", text("HTTP/1.1 200 OK\r\ncontent-length: 104857601\r\n\r\n")),
        ("/short", text("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello")),
    ]);
    let mut peer = Peer::founding().await;
    let mut fetch = async |path: &str, to: &str| {
        let url = format!("http://127.0.0.1:{port}{path}");
        ask(&mut peer, "download_file", json!({ "url": url, "output_path": to })).await
    };
    let done = fetch("/moved", "new/dir/file").await;
    assert_eq!((&done["type"], &done["body"]), (&json!("ok"), &json!({ "size": 5 })));
    for (path, to, code) in [
        ("/round", "a", "EIO"),
        ("/none", "a", "EIO"),
        ("/huge", "a", "EFBIG"),
        ("/short", "a", "EIO"),
        ("/file", "../w-evil/a", "EPERM"),
        ("/file", "", "EPERM"),
    ] {
        let answer = fetch(path, to).await;
        assert_eq!(
            (&answer["type"], answer["body"]["code"].as_str()),
            (&json!("error"), Some(code)),
            "{path} {answer}"
        );
    }
    for (url, code) in [("http://127.0.0.1:9/x", "EIO"), ("file:///etc/passwd", "EINVAL"), ("x", "EINVAL")] {
        let answer = ask(&mut peer, "download_file", json!({ "url": url, "output_path": "a" })).await;
        assert_eq!(answer["body"]["code"], code, "{url}: {answer}");
    }
    assert_eq!(std::fs::read(peer.path("new/dir/file")).unwrap(), b"hello");
    assert!(!peer.path("a").exists());
}

#[tokio::test]
async fn there_is_no_language_model_here() {
    let mut peer = Peer::founding().await;
    for kind in ["llm_models", "llm_generate"] {
        let answer = ask(&mut peer, kind, json!({})).await;
        let message = json!("local LLM not configured on this runner");
        assert_eq!((code(&answer), &answer["body"]["message"]), ("ENOTSUP", &message));
    }
}
