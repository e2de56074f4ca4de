//! What services of this project ask beyond the founding requests: files and output in pieces.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox::wire::{FILES_MAX, PIECE_BYTES};
use serde_json::{Value, json};

use crate::support::{Peer, code};

fn bytes_of(answer: &Value) -> Vec<u8> {
    STANDARD.decode(answer["body"]["data"].as_str().unwrap()).unwrap()
}

/// Bytes without a period that pieces could hide.
fn sample(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[tokio::test]
async fn a_file_is_read_in_pieces_in_the_order_they_are_asked_for() {
    let mut peer = Peer::exact().await;
    let whole = sample(3 * PIECE_BYTES + 17);
    std::fs::write(peer.path("f"), &whole).unwrap();
    let opened = peer.ask("open_read", json!({"path": "f"})).await;
    assert_eq!((&opened["type"], &opened["body"]["range"]), (&json!("opened"), &json!([0, whole.len()])));
    let mut got = bytes_of(&opened);
    let handle = opened["body"]["handle"].clone();
    for id in ["1", "2", "3", "4"] {
        peer.send(id, "read_piece", json!({"handle": handle})).await;
    }
    for id in ["1", "2", "3", "4"] {
        let piece = peer.next().await;
        assert_eq!((&piece["id"], piece["body"].get("last").is_some()), (&json!(id), id == "3" || id == "4"));
        got.extend(bytes_of(&piece));
    }
    assert!(got == whole);
    peer.send("", "close", json!({"handle": handle})).await;
    assert_eq!(code(&peer.ask("read_piece", json!({"handle": handle})).await), "EINVAL");
}

#[tokio::test]
async fn a_small_file_and_a_part_of_a_file_come_with_the_answer_to_opening() {
    let mut peer = Peer::exact().await;
    std::fs::write(peer.path("f"), b"0123456789").unwrap();
    let opened = peer.ask("open_read", json!({"path": "f", "range": [2, 5]})).await;
    assert_eq!((bytes_of(&opened), &opened["body"]["last"]), (b"234".to_vec(), &json!(true)));
    assert_eq!(opened["body"]["info"]["size"], 10);
    let refused = peer.ask("open_read", json!({"path": "f", "bytes_max": 9})).await;
    assert_eq!((code(&refused), &refused["body"]["kind"]), ("EFBIG", &json!("too_large")));
    assert_eq!(bytes_of(&peer.ask("open_read", json!({"path": "f", "range": [7, 3]})).await), b"");
}

#[tokio::test]
async fn a_file_is_written_in_pieces_and_nothing_is_seen_before_it_is_finished() {
    let mut peer = Peer::exact().await;
    let whole = sample(3 * PIECE_BYTES + 5);
    let mut pieces = whole.chunks(PIECE_BYTES).map(|piece| STANDARD.encode(piece));
    let open =
        json!({"path": "f", "create": true, "perm": 0o600, "data": pieces.next().unwrap(), "last": false});
    let handle = peer.ask("open_write", open).await["body"]["handle"].clone();
    for (number, data) in pieces.enumerate() {
        peer.send(&number.to_string(), "write_piece", json!({"handle": handle, "data": data})).await;
    }
    for _ in 0..3 {
        assert_eq!(peer.next().await["type"], "ok");
    }
    assert!(!peer.path("f").exists());
    assert_eq!(peer.ask("finish_write", json!({"handle": handle})).await["type"], "ok");
    assert!(std::fs::read(peer.path("f")).unwrap() == whole);
    assert_eq!(code(&peer.ask("finish_write", json!({"handle": handle})).await), "EINVAL");
}

#[tokio::test]
async fn a_small_file_is_written_with_one_request() {
    let mut peer = Peer::exact().await;
    let open = json!({"path": "f", "create": true, "data": STANDARD.encode("x"), "last": true});
    assert_eq!(peer.ask("open_write", open.clone()).await["type"], "ok");
    assert_eq!(code(&peer.ask("open_write", open).await), "EEXIST");
    assert_eq!(std::fs::read(peer.path("f")).unwrap(), b"x");
}

#[tokio::test]
async fn a_write_that_fails_tells_why_at_a_later_piece_or_at_the_end() {
    let mut peer = Peer::exact().await;
    let opened = peer.ask("open_write", json!({"path": "no/f", "data": "eA==", "last": false})).await;
    let handle = &opened["body"]["handle"];
    assert_eq!(code(&peer.ask("finish_write", json!({"handle": handle})).await), "ENOENT");
}

#[tokio::test]
async fn a_write_that_is_closed_or_left_leaves_nothing() {
    let mut peer = Peer::exact().await;
    let big = STANDARD.encode(sample(PIECE_BYTES));
    for name in ["closed", "left"] {
        let opened = peer.ask("open_write", json!({"path": name, "data": big, "last": false})).await;
        for _ in 0..3 {
            let piece = json!({"handle": opened["body"]["handle"], "data": big});
            assert_eq!(peer.ask("write_piece", piece).await["type"], "ok");
        }
        if name == "closed" {
            peer.send("", "close", json!({"handle": opened["body"]["handle"]})).await;
        }
    }
    let Peer { session, answers, workspace, around } = peer;
    drop(answers);
    session.close().await;
    assert_eq!(std::fs::read_dir(workspace).unwrap().count(), 0);
    drop(around);
}

#[tokio::test]
async fn a_file_of_which_a_piece_was_refused_is_not_finished() {
    let mut peer = Peer::exact().await;
    let too_long = STANDARD.encode(sample(PIECE_BYTES + 1));
    for data in [too_long.as_str(), "!!!"] {
        let opened = peer.ask("open_write", json!({"path": "f", "data": "eA==", "last": false})).await;
        let handle = &opened["body"]["handle"];
        assert_eq!(code(&peer.ask("write_piece", json!({"handle": handle, "data": data})).await), "EINVAL");
        assert_eq!(code(&peer.ask("finish_write", json!({"handle": handle})).await), "EIO");
    }
    assert!(!peer.path("f").exists());
}

#[tokio::test]
async fn handles_of_others_and_of_the_wrong_kind_are_refused() {
    let (mut peer, mut other) = (Peer::exact().await, Peer::exact().await);
    std::fs::write(other.path("f"), sample(2 * PIECE_BYTES)).unwrap();
    let foreign = other.ask("open_read", json!({"path": "f"})).await["body"]["handle"].clone();
    for handle in [json!(0), json!(1), json!(u64::MAX), foreign.clone()] {
        for kind in ["read_piece", "finish_write"] {
            assert_eq!(code(&peer.ask(kind, json!({"handle": handle})).await), "EINVAL");
        }
        assert_eq!(code(&peer.ask("write_piece", json!({"handle": handle, "data": ""})).await), "EINVAL");
    }
    assert_eq!(code(&other.ask("write_piece", json!({"handle": foreign, "data": ""})).await), "EINVAL");
    assert_eq!(code(&other.ask("finish_write", json!({"handle": foreign})).await), "EINVAL");
    let writing = other.ask("open_write", json!({"path": "g", "data": "", "last": false})).await;
    assert_eq!(code(&other.ask("read_piece", json!({"handle": writing["body"]["handle"]})).await), "EINVAL");
    assert_eq!(code(&peer.ask("read_piece", json!({"handle": -1})).await), "EINVAL");
}

#[tokio::test]
async fn at_most_so_many_files_are_open_and_closing_one_makes_room() {
    let mut peer = Peer::exact().await;
    let open = json!({"path": "f", "data": "", "last": false});
    let first = peer.ask("open_write", open.clone()).await["body"]["handle"].clone();
    for _ in 1..FILES_MAX {
        assert_eq!(peer.ask("open_write", open.clone()).await["type"], "opened");
    }
    assert_eq!(code(&peer.ask("open_write", open.clone()).await), "EBUSY");
    peer.send("", "close", json!({"handle": first})).await;
    let mut answer = peer.ask("open_write", open.clone()).await;
    while answer["type"] == "error" {
        tokio::time::sleep(Duration::from_millis(5)).await;
        answer = peer.ask("open_write", open.clone()).await;
    }
    assert_eq!(answer["type"], "opened");
}

#[tokio::test]
async fn output_comes_ahead_of_the_result_byte_for_byte() {
    let mut peer = Peer::exact().await;
    let asked = json!({"command": "printf '\\377\\0x'; head -c 600000 /dev/zero >&2; kill -9 $$", "shell": true,
        "output_bytes_max": 1 << 20});
    peer.send("e", "exec", asked).await;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let result = loop {
        let frame = peer.next().await;
        assert_eq!(frame["id"], "e");
        match frame["type"].as_str().unwrap() {
            "exec_output" if frame["body"]["stream"] == "stdout" => stdout.extend(bytes_of(&frame)),
            "exec_output" => {
                let piece = bytes_of(&frame);
                assert!(piece.len() <= PIECE_BYTES);
                stderr.extend(piece);
            }
            _ => break frame,
        }
    };
    assert_eq!((stdout, stderr), (b"\xff\0x".to_vec(), vec![0; 600_000]));
    assert_eq!(
        result["body"],
        json!({"stdout": "", "stderr": "", "exit_code": -1, "timed_out": false, "signal": "SIGKILL"})
    );
}

#[tokio::test]
async fn a_command_that_is_cancelled_is_killed_and_not_answered() {
    let mut peer = Peer::exact().await;
    peer.send("c", "exec", json!({"command": "echo $$ > pid; sleep 30; touch late", "shell": true})).await;
    let pid = loop {
        let pid = std::fs::read_to_string(peer.path("pid")).unwrap_or_default();
        if pid.ends_with('\n') {
            break pid.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    peer.session.receive(r#"{"type":"cancel","body":{"request":"c"}}"#).await;
    let place = format!("/proc/{pid}/stat");
    while std::fs::read_to_string(&place).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    peer.is_silent().await;
    // The id may be used again.
    assert_eq!(peer.ask("stat", json!({"path": ""})).await["type"], "file_info");
}

#[tokio::test]
async fn a_large_directory_comes_in_parts_in_order() {
    let mut peer = Peer::exact().await;
    for number in 0..4500 {
        std::fs::write(peer.path(&format!("{number:05}")), "").unwrap();
    }
    peer.send("d", "read_dir", json!({"path": ""})).await;
    let mut names = Vec::new();
    let mut sizes = Vec::new();
    loop {
        let frame = peer.next().await;
        let entries = frame["body"]["entries"].as_array().unwrap();
        sizes.push(entries.len());
        names.extend(entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()));
        if frame["type"] == "dir_entries" {
            break;
        }
        assert_eq!(frame["type"], "dir_part");
    }
    assert_eq!(sizes, [2000, 2000, 500]);
    assert!(names.is_sorted() && names.len() == 4500);
}
