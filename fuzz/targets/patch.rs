//! Patches: a text is no patch, or is worked out for the files of a workspace, which stay as they were.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use policy::{AgentId, RelPath, TreeId, UserId};
use storage::patch::{self, PatchOptions};
use storage::{Files, Options, Store, WriteOptions};
use tempfile::TempDir;

const TEXTS: [(&str, &str); 3] = [
    ("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"),
    ("b/c.txt", "one\r\ntwo\r\nthree"),
    ("empty", ""),
];

static WORKSPACE: LazyLock<(Files, TempDir)> = LazyLock::new(|| {
    let place = tempfile::tempdir_in("/dev/shm").expect("room in memory");
    let (store, _) = Store::open(place.path(), Options::default()).expect("a store");
    let user = UserId::parse("user").expect("an id");
    let files = store.files(TreeId::Workspace(user, AgentId::parse("agent").expect("an id")));
    for (path, text) in TEXTS {
        let path = RelPath::parse(path).expect("a path");
        let mut staged = files.stage().expect("room in memory");
        staged.write(text.as_bytes()).expect("room in memory");
        files
            .write(&path, staged, &WriteOptions { parents: true, ..WriteOptions::default() })
            .expect("a file");
    }
    (files, place)
});

fuzz_target!(|text: &str| {
    let parsed = patch::parse(text, &|path| RelPath::parse(path));
    let Ok(files) = parsed else { return };
    assert!(!files.is_empty() && files.len() <= patch::FILES_MAX);
    for file in &files {
        for hunk in &file.hunks {
            let (added, removed) = hunk.counts();
            assert!(added + removed <= hunk.lines.len());
        }
    }
    let options = PatchOptions { dry_run: true, limit: 1 << 20, ..PatchOptions::default() };
    if let Ok(outcomes) = WORKSPACE.0.patch(&files, &options) {
        assert_eq!(outcomes.len(), files.len());
    }
});
