//! What runners of both founding generations answered, without what was wrong with it.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{Peer, code};

/// Requests in order, and of the answers what matters. `W` is the workspace, `<W>` its name, `OUT` a directory elsewhere.
const RECORDED: &str = include_str!("recorded.jsonl");

fn arrange(peer: &Peer) {
    let out = peer.around().join("out");
    let evil = peer.around().join("w-evil");
    for directory in [&out, &evil, &peer.path("d"), &peer.path("d/e")] {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(&peer.workspace, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(evil.join("s"), "evil").unwrap();
    std::fs::write(peer.path("a.txt"), "hello\n").unwrap();
    std::fs::set_permissions(peer.path("a.txt"), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(peer.path("bin.dat"), (0..=255).collect::<Vec<u8>>()).unwrap();
    for (target, link) in [("/etc", "lnk"), ("d", "din"), ("missing", "broken"), ("a.txt", "link-to-inside")]
    {
        symlink(target, peer.path(link)).unwrap();
    }
    symlink(&out, peer.path("dang")).unwrap();
}

/// The text of the recording with the paths of this test.
fn here(peer: &Peer, text: &str) -> Value {
    let name = peer.workspace.rsplit('/').next().unwrap();
    let out = peer.around().join("out");
    let text = text
        .replace("<base of W>", name)
        .replace("<W>", name)
        .replace("OUT", out.to_str().unwrap())
        .replace("\"W", &format!("\"{}", peer.workspace));
    serde_json::from_str(&text).unwrap()
}

/// `got` has everything of `want`.
fn covers(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (Value::Object(got), Value::Object(want)) => {
            want.iter().all(|(key, value)| got.get(key).is_some_and(|got| covers(got, value)))
        }
        (Value::Array(got), Value::Array(want)) => {
            got.len() == want.len() && got.iter().zip(want).all(|(got, want)| covers(got, want))
        }
        _ => got == want,
    }
}

async fn replay(mut peer: Peer) {
    arrange(&peer);
    for (number, line) in RECORDED.lines().enumerate() {
        let row = here(&peer, line);
        let (request, mut want) = (&row["request"], row["want"].clone());
        let begun = Instant::now();
        let answer = peer.ask(request["type"].as_str().unwrap(), request["body"].clone()).await;
        let place = format!("row {}: {request}", number + 1);
        let fields = want.as_object_mut().unwrap();
        if let Some(most) = fields.remove("within_s") {
            assert!(begun.elapsed().as_secs_f64() < most.as_f64().unwrap(), "{place}");
        }
        if let Some(mode) = fields.remove("mode").filter(Value::is_string) {
            let path = peer.path(request["body"]["path"].as_str().unwrap());
            let bits = std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(json!(format!("{bits:04o}")), mode, "{place}");
        } else if let Some(mode) = row["want"].get("mode") {
            fields.insert("mode".to_owned(), mode.clone());
        }
        if let Some(bytes) = fields.remove("stdout_bytes") {
            assert_eq!(json!(answer["body"]["stdout"].as_str().unwrap().len()), bytes, "{place}");
        }
        assert_eq!(answer["type"], fields.remove("type").unwrap(), "{place}: {answer}");
        assert!(covers(&answer["body"], &want) || want == json!({}), "{place}: {answer}");
    }
    assert_eq!(std::fs::read_dir(peer.around().join("out")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(peer.around().join("w-evil")).unwrap().count(), 1);
    assert!(peer.path("a.txt").exists() && !peer.path("link-to-inside").is_symlink());
}

#[tokio::test]
async fn a_founding_service_is_answered_as_recorded_but_for_the_defects() {
    replay(Peer::founding().await).await;
}

#[tokio::test]
async fn a_service_of_ours_may_ask_the_founding_requests_too() {
    replay(Peer::exact().await).await;
}

#[tokio::test]
async fn answers_to_a_founding_service_have_the_recorded_fields_only() {
    let mut peer = Peer::founding().await;
    arrange(&peer);
    let fields = |answer: &Value| answer.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let stat = peer.ask("stat", json!({"path": "a.txt"})).await;
    assert_eq!(fields(&stat["body"]), ["is_dir", "mod_time", "mode", "name", "size"]);
    let listed = peer.ask("read_dir", json!({"path": "."})).await;
    assert_eq!(fields(&listed["body"]["entries"][0]), ["is_dir", "name", "size"]);
    let link =
        listed["body"]["entries"].as_array().unwrap().iter().find(|entry| entry["name"] == "din").unwrap();
    assert_eq!(*link, json!({"name": "din", "is_dir": false, "size": 1}));
    let killed = peer.ask("exec", json!({"command": "kill -9 $$", "shell": true})).await;
    assert_eq!(fields(&killed["body"]), ["exit_code", "stderr", "stdout", "timed_out"]);
}

#[tokio::test]
async fn the_flat_form_and_frames_without_an_id_are_answered() {
    let mut peer = Peer::founding().await;
    peer.session.receive(r#"{"id":"B","type":"exec","command":"echo flat","shell":true}"#).await;
    let answer = peer.next().await;
    assert_eq!((&answer["id"], &answer["body"]["stdout"]), (&json!("B"), &json!("flat\n")));
    peer.session.receive(r#"{"type":"exec","body":{"command":"echo noid","shell":true}}"#).await;
    let answer = peer.next().await;
    assert_eq!((answer.get("id"), &answer["body"]["stdout"]), (None, &json!("noid\n")));
}

#[tokio::test]
async fn what_is_no_request_is_not_answered() {
    let mut peer = Peer::founding().await;
    for text in [
        "not json",
        "[]",
        "",
        r#"{"type":"register_ok","body":{"status":"ok"}}"#,
        r#"{"type":"error","body":{"code":"EINVAL","message":"m"}}"#,
        r#"{"id":"x","type":"ok"}"#,
        r#"{"type":"close","body":{"handle":1}}"#,
        r#"{"type":"cancel","body":{"request":"x"}}"#,
    ] {
        peer.session.receive(text).await;
    }
    peer.is_silent().await;
}

#[tokio::test]
async fn a_request_does_not_wait_for_one_before_it() {
    let mut peer = Peer::founding().await;
    peer.send("slow", "exec", json!({"command": "sleep 3", "shell": true})).await;
    peer.send("fast", "stat", json!({"path": ""})).await;
    assert_eq!(peer.next().await["id"], "fast");
}

#[tokio::test]
async fn the_workspace_itself_is_not_removed_however_it_is_called() {
    let mut peer = Peer::founding().await;
    arrange(&peer);
    let workspace = peer.workspace.clone();
    for kind in ["remove", "remove_all"] {
        for path in ["", ".", "/", "d/..", "./d/e/../..", &workspace, "..", &format!("{workspace}/")] {
            let answer = peer.ask(kind, json!({"path": path})).await;
            assert!(["EINVAL", "EPERM"].contains(&code(&answer)), "{kind} {path}: {answer}");
        }
        // Without any path at all.
        assert_eq!(code(&peer.ask(kind, json!({})).await), "EINVAL");
    }
    assert!(peer.path("a.txt").exists());
}

#[tokio::test]
async fn only_the_low_nine_bits_of_perm_count() {
    let mut peer = Peer::founding().await;
    for (name, perm, bits) in [("a", 0o4600, 0o600), ("b", 0o4000, 0o644), ("c", u32::MAX, 0o777)] {
        assert_eq!(
            peer.ask("write_file", json!({"path": name, "data": "", "perm": perm})).await["type"],
            "ok"
        );
        let mode = std::fs::metadata(peer.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, bits, "{name}");
    }
}

#[tokio::test]
async fn a_program_gets_the_variables_and_the_input_of_the_request_and_none_of_the_runner() {
    let mut peer = Peer::founding().await;
    let asked = json!({"command": "echo $A; cat; env", "shell": true, "env": ["A=b=c"], "stdin": "in\n"});
    let answer = peer.ask("exec", asked).await;
    let stdout = answer["body"]["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("b=c\nin\n"), "{stdout}");
    assert!(!stdout.contains("CARGO_MANIFEST_DIR"), "{stdout}");
    let answer = peer.ask("exec", json!({"command": "true", "shell": true, "env": ["A"]})).await;
    assert_eq!(code(&answer), "EINVAL");
}

#[tokio::test]
async fn text_output_fits_a_frame_and_tells_how_much_is_missing() {
    let mut peer = Peer::founding().await;
    let answer =
        peer.ask("exec", json!({"command": "head -c 9000000 /dev/zero; echo end", "shell": true})).await;
    let stdout = answer["body"]["stdout"].as_str().unwrap();
    let dropped = answer["body"]["stdout_dropped"].as_u64().unwrap();
    assert_eq!(stdout.len() as u64 + dropped, 9_000_004);
    assert!(stdout.ends_with("end\n") && answer.to_string().len() <= sandbox::wire::FRAME_BYTES_MAX);
}
