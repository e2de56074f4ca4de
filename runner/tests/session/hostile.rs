//! Services that mean harm, or are broken.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox::wire::{CALLS_MAX, FRAME_BYTES_MAX, ONE_FRAME_BYTES_MAX};
use serde_json::json;

use crate::support::{Peer, code};

#[tokio::test]
async fn a_flood_of_requests_is_refused_and_the_rest_goes_on() {
    let mut peer = Peer::exact().await;
    for number in 0..CALLS_MAX {
        peer.send(&format!("s{number}"), "exec", json!({"args": ["sleep", "30"]})).await;
    }
    for id in ["more", "even more"] {
        peer.send(id, "stat", json!({"path": ""})).await;
        let refused = peer.next().await;
        assert_eq!((&refused["id"], code(&refused)), (&json!(id), "EBUSY"));
    }
    peer.session.receive(r#"{"type":"cancel","body":{"request":"s0"}}"#).await;
    let mut answer = peer.ask("stat", json!({"path": ""})).await;
    while answer["type"] == "error" {
        tokio::time::sleep(Duration::from_millis(10)).await;
        answer = peer.ask("stat", json!({"path": ""})).await;
    }
    assert_eq!(answer["type"], "file_info");
}

#[tokio::test]
async fn the_bytes_of_requests_under_way_are_bounded() {
    let mut peer = Peer::exact().await;
    let stdin = "x".repeat(10 << 20);
    let ids: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    for id in &ids {
        peer.send(id, "exec", json!({"args": ["sleep", "30"], "stdin": stdin})).await;
    }
    for id in &ids[6..] {
        let refused = peer.next().await;
        assert_eq!((&refused["id"], code(&refused)), (&json!(id), "EBUSY"));
    }
    peer.is_silent().await;
}

#[tokio::test]
async fn one_id_names_one_request() {
    let mut peer = Peer::exact().await;
    peer.send("same", "exec", json!({"args": ["sleep", "30"]})).await;
    assert_eq!(
        code(&{
            peer.send("same", "stat", json!({"path": ""})).await;
            peer.next().await
        }),
        "EINVAL"
    );
}

#[tokio::test]
async fn a_service_that_reads_nothing_is_waited_for_and_then_left() {
    let peer = Peer::exact().await;
    for number in 0..40 {
        peer.send(&number.to_string(), "exec", json!({"args": ["true"]})).await;
    }
    // Refusals wait for room, not for ever: until the receiver is gone.
    let refuse = async {
        for _ in 0..100 {
            peer.session.receive(r#"{"id":"n","type":"nonsense"}"#).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(300), refuse).await.is_err());
    let Peer { session, answers, .. } = peer;
    drop(answers);
    session.receive(r#"{"id":"n","type":"nonsense"}"#).await;
    session.close().await;
}

#[tokio::test]
async fn frames_as_large_as_they_may_be_are_served_and_larger_ones_ignored() {
    let mut peer = Peer::founding().await;
    let data = STANDARD.encode(vec![b'x'; usize::try_from(ONE_FRAME_BYTES_MAX).unwrap()]);
    assert_eq!(peer.ask("write_file", json!({"path": "f", "data": data})).await["type"], "ok");
    let read = peer.ask("read_file", json!({"path": "f"})).await;
    assert!(read["body"]["data"] == data.as_str());
    let huge = json!({"id": "q", "type": "stat", "body": {"path": "f", "more": "x".repeat(FRAME_BYTES_MAX)}});
    peer.session.receive(&huge.to_string()).await;
    peer.is_silent().await;
    std::fs::OpenOptions::new()
        .append(true)
        .open(peer.path("f"))
        .unwrap()
        .set_len(ONE_FRAME_BYTES_MAX + 1)
        .unwrap();
    assert_eq!(code(&peer.ask("read_file", json!({"path": "f"})).await), "EFBIG");
}

#[tokio::test]
async fn many_whole_files_at_once_are_all_told() {
    let mut peer = Peer::founding().await;
    std::fs::write(peer.path("f"), vec![b'x'; 4 << 20]).unwrap();
    for number in 0..24 {
        peer.send(&number.to_string(), "read_file", json!({"path": "f"})).await;
    }
    for _ in 0..24 {
        assert_eq!(peer.next().await["type"], "file_content");
    }
}

#[tokio::test]
async fn lies_about_sizes_and_numbers_are_refused() {
    let mut peer = Peer::exact().await;
    std::fs::write(peer.path("f"), "0123").unwrap();
    let opened =
        peer.ask("open_read", json!({"path": "f", "range": [1, u64::MAX], "bytes_max": u64::MAX})).await;
    assert_eq!(opened["body"]["range"], json!([1, 4]));
    for (kind, body) in [
        ("exec", json!({"command": "true", "shell": true, "timeout": "1"})),
        ("exec", json!({"command": "true", "shell": true, "timeout": 1e300})),
        ("exec", json!({"args": "true"})),
        ("exec", json!({"args": [""]})),
        ("exec", json!({"args": ["a\u{0}b"]})),
        ("exec", json!({"args": ["true"], "env": ["A=\u{0}"]})),
        ("open_read", json!({"path": "f", "range": [-1, 2]})),
        ("stat", json!({"path": 1})),
        ("stat", json!({"path": "a\u{0}b"})),
        ("stat", json!({"path": "x".repeat(300)})),
        ("stat", json!({"path": "x/".repeat(9000)})),
        ("write_file", json!({"path": "g", "data": "", "perm": -1})),
    ] {
        assert_eq!(code(&peer.ask(kind, body.clone()).await), "EINVAL", "{kind} {body}");
    }
    let much =
        json!({"args": ["true"], "timeout": i64::MAX, "output_bytes_max": u64::MAX, "timeout_ms": u64::MAX});
    assert_eq!(peer.ask("exec", much).await["body"]["exit_code"], 0);
}

#[tokio::test]
async fn no_path_leads_out_and_no_answer_tells_what_is_there() {
    let mut peer = Peer::exact().await;
    let outside = peer.around().join("secret-place");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret-name"), "secret-text").unwrap();
    std::os::unix::fs::symlink(&outside, peer.path("out")).unwrap();
    std::os::unix::fs::symlink("/proc/self", peer.path("proc")).unwrap();
    std::os::unix::fs::symlink("/", peer.path("root")).unwrap();
    for path in [
        "out",
        "out/secret-name",
        "../secret-place/secret-name",
        "proc/environ",
        "root/etc/passwd",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "../../../../../../../../etc/passwd",
        "/",
    ] {
        for (kind, body) in [
            ("read_file", json!({"path": path})),
            ("open_read", json!({"path": path})),
            ("stat", json!({"path": path})),
            ("read_dir", json!({"path": path})),
            ("write_file", json!({"path": format!("{path}/new"), "data": ""})),
            ("open_write", json!({"path": format!("{path}/new"), "data": "", "last": true})),
            ("mkdir_all", json!({"path": format!("{path}/new/new")})),
            ("exec", json!({"args": ["true"], "dir": path})),
        ] {
            let answer = peer.ask(kind, body).await;
            assert!(["EPERM", "EINVAL", "ENOTDIR"].contains(&code(&answer)), "{kind} {path}: {answer}");
            let told = answer.to_string();
            assert!(!told.contains("secret") && !told.contains(peer.around().to_str().unwrap()), "{told}");
        }
    }
    let listed = std::fs::read_dir(&outside).unwrap().count();
    assert_eq!(listed, 1);
}

#[tokio::test]
async fn deep_json_and_long_names_are_no_trouble() {
    let mut peer = Peer::exact().await;
    let deep = format!(r#"{{"id":"d","type":"stat","body":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    peer.session.receive(&deep).await;
    let long = json!({"id": "l", "type": "x".repeat(1 << 20)});
    peer.session.receive(&long.to_string()).await;
    let mut answers = Vec::new();
    while let Ok(Some(text)) = tokio::time::timeout(Duration::from_millis(200), peer.answers.recv()).await {
        assert!(text.len() < 1024, "{}", text.len());
        answers.push(text);
    }
    assert!(answers.len() <= 2 && !answers.is_empty());
}
