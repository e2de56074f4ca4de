//! Attacks on the disk: taking more of it than one may, by other means than writing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::attack::Attack;
use crate::expectation::Finding;
use crate::scene::Scene;

const MIB: u64 = 1024 * 1024;
/// The most bytes that a download packs by the default settings.
const DOWNLOAD_BYTES: u64 = 512 * MIB;
/// The bytes that each upload announces: three have room in a tree, and one or two on their way.
const UPLOAD_BYTES: usize = 20 << 20;
const UPLOADS: usize = 6;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::payload("disk.py", "setting_a_project_or_flags_of_a_file"),
    Attack::driven("downloading_second_names_and_holes", downloading).everywhere(),
    Attack::driven("holding_uploads_that_do_not_end", holding_uploads).everywhere(),
];

/// A skill takes little on the disk and very much in an archive.
fn downloading(scene: &Scene<'_>) -> Finding {
    let tree = scene.skill();
    let download = || scene.client().get(format!("{tree}/download"));
    assert!(!download().bytes(200).is_empty(), "the control");
    for (what, line) in [
        ("second names", "head -c 16000000 /dev/zero > f; for i in $(seq 60); do ln f link-$i; done"),
        ("holes", "for i in $(seq 60); do truncate -s 30000000 hole-$i; done"),
    ] {
        let ran = scene.exec(&tree, &json!({ "shell": line, "timeout_ms": 15_000 }));
        let listing = scene.client().get(format!("{tree}/files?detail=true")).ok();
        let sizes = listing["data"].as_array().into_iter().flatten();
        let bytes: u64 = sizes.filter_map(|entry| entry["size"].as_u64()).sum();
        assert!(what != "holes" || bytes > DOWNLOAD_BYTES, "the control: {bytes}, {}", ran.result);
        let reply = download();
        // Where the run worked on a copy, its second names were not taken in at all.
        if reply.status == 200 && bytes > DOWNLOAD_BYTES {
            return Finding::Through(format!("{bytes} bytes of {what} were packed"));
        }
        if bytes > DOWNLOAD_BYTES {
            reply.refused(413, "too_large");
        }
        scene.client().post(format!("{tree}/reset"), "");
    }
    Finding::Stopped
}

/// Uploads that lack their last byte are in no tree, and count only for their user.
fn holding_uploads(scene: &Scene<'_>) -> Finding {
    if scene.stage.host.is_none() {
        return Finding::Skipped("the service's limit is more than a test may send".into());
    }
    // Into two trees: what is on its way counts for the user, wherever it goes.
    let other = format!("/v1/sandbox/{}/other", crate::client::encoded(&scene.user));
    let held = hold(scene, &[scene.workspace(), other]);
    assert!(held.0 > 0, "the control: no upload was begun");
    let most = (32 << 20) / UPLOAD_BYTES;
    // The control: the disk of another user is another's, and one's own is free again when the uploads are dropped.
    scene.put(&scene.control().workspace(), "f", vec![b'x'; 1 << 20]);
    drop_all(scene, held.1);
    match held.0 <= most {
        true => Finding::Stopped,
        false => Finding::Through(format!("{} unfinished uploads of {UPLOAD_BYTES} bytes", held.0)),
    }
}

/// Begins uploads and sends all but the last byte of each. How many the service takes, and the connections.
fn hold(scene: &Scene<'_>, trees: &[String; 2]) -> (usize, Vec<TcpStream>) {
    let mut taken = 0;
    let mut streams = Vec::new();
    for number in 0..UPLOADS {
        let tree = &trees[number % trees.len()];
        let mut stream = scene.client().connect();
        let token = scene.client().token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "PUT {tree}/raw/held-{number} HTTP/1.1\r\nHost: {}\r\n{}Content-Length: {UPLOAD_BYTES}\r\n\r\n",
            scene.client().address,
            token.unwrap_or_default()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A refusal closes the connection before all is sent.
        let is_sent = stream.write_all(&vec![b'x'; UPLOAD_BYTES - 1]).is_ok();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let is_answered = stream.read(&mut [0; 64]).is_ok();
        taken += usize::from(is_sent && !is_answered);
        streams.push(stream);
    }
    (taken, streams)
}

/// Closes the connections and waits until what they held is free: a whole file of that size is taken again.
fn drop_all(scene: &Scene<'_>, streams: Vec<TcpStream>) {
    drop(streams);
    let begun = std::time::Instant::now();
    let target = format!("{}/raw/whole?parents=true", scene.workspace());
    while scene.client().put(&target, vec![b'x'; UPLOAD_BYTES]).status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(60), "dropped uploads go on counting");
        std::thread::sleep(Duration::from_millis(50));
    }
    scene.client().delete(format!("{}/file?path=whole", scene.workspace()));
}
