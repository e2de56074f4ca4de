//! Versions of files, and writes that are bound to one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{Peer, code};

fn write(version: &Value, text: &str) -> Value {
    json!({"path": "f", "version": version, "data": STANDARD.encode(text), "last": true})
}

#[tokio::test]
async fn of_two_writes_from_one_version_the_second_is_refused() {
    let mut peer = Peer::swapping().await;
    std::fs::write(peer.path("f"), "old").unwrap();
    let stat = peer.ask("stat", json!({"path": "f"})).await;
    let opened = peer.ask("open_read", json!({"path": "f"})).await;
    let old = stat["body"]["version"].clone();
    assert_eq!((&opened["body"]["info"]["version"], old.is_string()), (&old, true));
    let first = peer.ask("open_write", write(&old, "first")).await;
    assert_eq!(first["type"], "written");
    let second = peer.ask("open_write", write(&old, "second")).await;
    assert_eq!((code(&second), &second["body"]["kind"]), ("ESTALE", &json!("stale")));
    assert_eq!(std::fs::read_to_string(peer.path("f")).unwrap(), "first");
    let stat = peer.ask("stat", json!({"path": "f"})).await;
    assert_eq!(stat["body"]["version"], first["body"]["version"]);
    assert_eq!(peer.ask("stat", json!({"path": ""})).await["body"].get("version"), None);
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_written_in_pieces_is_left_alone() {
    let mut peer = Peer::swapping().await;
    std::fs::write(peer.path("f"), "old").unwrap();
    let version = peer.ask("stat", json!({"path": "f"})).await["body"]["version"].clone();
    let opened = peer.ask("open_write", json!({"path": "f", "version": version})).await;
    let handle = opened["body"]["handle"].clone();
    peer.ask("write_piece", json!({"handle": handle, "data": STANDARD.encode("new")})).await;
    std::fs::write(peer.path("f"), "between").unwrap();
    let finished = peer.ask("finish_write", json!({"handle": handle})).await;
    assert_eq!(code(&finished), "ESTALE");
    assert_eq!(std::fs::read_to_string(peer.path("f")).unwrap(), "between");
    let version = peer.ask("stat", json!({"path": "f"})).await["body"]["version"].clone();
    let opened = peer.ask("open_write", json!({"path": "f", "version": version})).await;
    let finished = peer.ask("finish_write", json!({"handle": opened["body"]["handle"]})).await;
    assert_eq!((&finished["type"], finished["body"]["version"].is_string()), (&json!("written"), true));
}

#[tokio::test]
async fn a_version_that_is_none_or_was_not_agreed_on_replaces_nothing() {
    let mut peer = Peer::swapping().await;
    std::fs::write(peer.path("f"), "old").unwrap();
    for version in ["", "a b", "a\"b", "a\r\nb", "版本", &"x".repeat(129)] {
        assert_eq!(
            code(&peer.ask("open_write", write(&json!(version), "new")).await),
            "EINVAL",
            "{version:?}"
        );
    }
    let both = json!({"path": "g", "create": true, "version": "v", "last": true});
    assert_eq!(code(&peer.ask("open_write", both).await), "EINVAL");
    assert_eq!(std::fs::read_to_string(peer.path("f")).unwrap(), "old");
    assert!(!peer.path("g").exists());

    let mut older = Peer::exact().await;
    std::fs::write(older.path("f"), "old").unwrap();
    assert_eq!(older.ask("stat", json!({"path": "f"})).await["body"].get("version"), None);
    assert_eq!(code(&older.ask("open_write", write(&json!("v"), "new")).await), "EINVAL");
    let plain = json!({"path": "f", "data": STANDARD.encode("new"), "last": true});
    assert_eq!(older.ask("open_write", plain).await["type"], "ok");
}
