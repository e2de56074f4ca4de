//! Laws of live views: commands and requests in one mount.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test's helpers panic, and do to the disk what commands do"
)]

mod fixture;

use std::fs;

use fixture::live::WAYS;
use fixture::{Fixture, Tree, put, read, skill_tree};

fn baseline() -> Tree {
    let mut tree = Tree::of(&[("f", "1"), ("d/x", "1"), ("d/y", "1"), ("d/e/z", "1"), ("数据.md", "1")]);
    tree.file("run.sh", "1", 0o755).link("link", "f").dir("empty", 0o750);
    tree
}

#[test]
fn what_a_request_changes_a_command_sees_at_once_and_the_reverse() {
    for way in WAYS {
        let Some(fixture) = Fixture::live(way) else { continue };
        fixture.baseline("s", &baseline());
        let files = fixture.skill("u", "s");
        let command = fixture.command(&skill_tree("u", "s"));
        put(&files, "d/x", "request");
        put(&files, "new/deep", "request");
        assert_eq!(fs::read_to_string(command.tree().join("d/x")).unwrap(), "request");
        assert_eq!(fs::read_to_string(command.tree().join("new/deep")).unwrap(), "request");
        fs::write(command.tree().join("d/x"), "command").unwrap();
        fs::write(command.tree().join("new/beside"), "command").unwrap();
        assert_eq!(read(&files, "d/x").unwrap(), "command");
        assert_eq!(read(&files, "new/beside").unwrap(), "command");
        drop(command);
        fixture.store.close_views().unwrap();
        assert_eq!(read(&files, "d/x").unwrap(), "command");
        fixture.assert_swept();
    }
}
