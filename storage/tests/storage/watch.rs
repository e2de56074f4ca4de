//! Laws of watching a tree: the events, put together, give the files that are there, after changes of every origin and
//! way.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use crate::fixture::live::Way;
use crate::fixture::random::Random;
use crate::fixture::{self, Fixture, Tree, agent, path, put, skill_tree, user_id};
use policy::{RelPath, Scope, TreeId};
use storage::watch::{Became, Notice, TreeWatch};
use storage::{Condition, ETag, Error, Files, Kind};

const ENTRIES_MAX: usize = 10_000;

/// What a listener knows: every entry, with the tag of those that are no directories.
type Seen = BTreeMap<RelPath, (Kind, Option<ETag>)>;

/// A watch and what a listener makes of it.
struct Listener {
    watch: TreeWatch,
    files: Files,
    seen: Seen,
}

impl Listener {
    fn new(fixture: &Fixture, id: &TreeId) -> Self {
        let files = fixture.store.files(id.clone());
        let watch = TreeWatch::new(fixture.store.clone(), id.clone(), ENTRIES_MAX).unwrap();
        let seen = there(&files);
        Self { watch, files, seen }
    }

    /// Takes in what there is to be told. Returns the notices as `became path`; `None` when all may be another.
    fn hear(&mut self) -> Option<Vec<String>> {
        while !self.watch.read().unwrap() {}
        let changes = if self.watch.has_notices() { self.watch.look().unwrap() } else { Default::default() };
        if changes.is_rebased {
            assert_eq!(changes.notices, []);
            self.seen = there(&self.files);
            return None;
        }
        changes.notices.iter().for_each(|notice| self.take_in(notice));
        assert_eq!(self.seen, there(&self.files), "{:?}", changes.notices);
        Some(changes.notices.iter().map(told).collect())
    }

    fn take_in(&mut self, notice: &Notice) {
        let is_below = |path: &RelPath, dir: &RelPath| path.as_str().starts_with(&format!("{dir}/"));
        let tag = notice.stat.as_ref().filter(|stat| stat.kind != Kind::Directory).map(|stat| stat.etag());
        let now = (notice.kind, tag);
        let before = match &notice.became {
            Became::Created => self.seen.insert(notice.path.clone(), now).is_none(),
            Became::Modified => self.seen.insert(notice.path.clone(), now).is_some(),
            Became::Deleted => {
                self.seen.retain(|path, _| !is_below(path, &notice.path));
                self.seen.remove(&notice.path).is_some()
            }
            Became::Moved { from } => {
                let was_there = self.seen.remove(from).is_some();
                let below: Vec<RelPath> =
                    self.seen.keys().filter(|path| is_below(path, from)).cloned().collect();
                for old in below {
                    let entry = self.seen.remove(&old).unwrap();
                    let new = old.as_str().replacen(from.as_str(), notice.path.as_str(), 1);
                    self.seen.insert(path(&new), entry);
                }
                was_there && self.seen.insert(notice.path.clone(), now).is_none()
            }
        };
        assert!(before, "what is told does not follow from what was told: {notice:?}");
    }
}

fn told(notice: &Notice) -> String {
    let path = &notice.path;
    match &notice.became {
        Became::Created => format!("created {path}"),
        Became::Modified => format!("modified {path}"),
        Became::Deleted => format!("deleted {path}"),
        Became::Moved { from } => format!("moved {from} {path}"),
    }
}

fn there(files: &Files) -> Seen {
    let walked = match files.walk(&RelPath::root(), usize::MAX, true) {
        Err(Error::NotFound(_)) => Vec::new(),
        walked => walked.unwrap(),
    };
    let entry = |walked: storage::tree::Walked| {
        let tag = walked.stat.filter(|stat| stat.kind != Kind::Directory).map(|stat| stat.etag());
        (walked.path, (walked.kind, tag))
    };
    walked.into_iter().map(entry).collect()
}

fn workspace(user: &str) -> TreeId {
    TreeId::Workspace(user_id(user), agent())
}

fn remove(files: &Files, at: &str) {
    files.remove(&path(at), true, &Condition::Always).unwrap();
}

/// Whether there is anything to look at within a moment.
fn stirs(watch: &mut TreeWatch) -> bool {
    let mut polled = [rustix::event::PollFd::from_borrowed_fd(watch.as_fd(), rustix::event::PollFlags::IN)];
    let wait = rustix::event::Timespec::try_from(Duration::from_millis(500)).unwrap();
    let _ = rustix::event::poll(&mut polled, Some(&wait)).unwrap();
    watch.read().unwrap() && watch.has_notices()
}

#[test]
fn each_change_of_a_workspace_is_told_once_from_the_first_on() {
    let fixture = Fixture::new();
    let mut listener = Listener::new(&fixture, &workspace("u"));
    let files = fixture.workspace("u");
    put(&files, "笔记.txt", "1");
    assert_eq!(listener.hear().unwrap(), ["created 笔记.txt"]);
    assert_eq!(listener.hear().unwrap(), Vec::<String>::new());
    put(&files, "笔记.txt", "2");
    put(&files, "笔记.txt", "3");
    assert_eq!(listener.hear().unwrap(), ["modified 笔记.txt"]);
    let dir = fixture.root().join("sandbox/u/agent");
    std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
    std::fs::write(dir.join("a/b/c/d"), "1").unwrap();
    assert_eq!(listener.hear().unwrap(), ["created a", "created a/b", "created a/b/c", "created a/b/c/d"]);
    std::fs::rename(dir.join("a/b"), dir.join("e")).unwrap();
    assert_eq!(listener.hear().unwrap(), ["moved a/b e"]);
    std::fs::write(dir.join("e/c/d"), "22").unwrap();
    std::fs::rename(dir.join("笔记.txt"), dir.join("e/f")).unwrap();
    assert_eq!(listener.hear().unwrap(), ["modified e/c/d", "moved 笔记.txt e/f"]);
    // A file that comes and goes in between is not told.
    std::fs::write(dir.join("passing"), "1").unwrap();
    std::fs::remove_file(dir.join("passing")).unwrap();
    assert_eq!(listener.hear().unwrap(), Vec::<String>::new());
    std::fs::remove_dir_all(dir.join("e")).unwrap();
    std::fs::write(dir.join("e"), "a file now").unwrap();
    assert_eq!(listener.hear().unwrap(), ["deleted e", "created e"]);
    std::fs::remove_dir_all(fixture.root().join("sandbox/u")).unwrap();
    assert_eq!(listener.hear().unwrap(), ["deleted a", "deleted e"]);
    put(&files, "again", "1");
    assert_eq!(listener.hear().unwrap(), ["created again"]);
    // Changes of other trees are not told.
    put(&fixture.workspace("v"), "own", "1");
    assert!(!stirs(&mut listener.watch));
}

#[test]
fn in_a_skill_the_merged_view_is_told_and_not_the_layers() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("f", "1"), ("d/x", "1"), ("d/e/y", "1")]));
    let mut listener = Listener::new(&fixture, &skill_tree("u", "s"));
    let skill = fixture.skill("u", "s");
    put(&skill, "d/e/y", "2");
    assert_eq!(listener.hear().unwrap(), ["modified d/e/y"]);
    remove(&skill, "f");
    assert_eq!(listener.hear().unwrap(), ["deleted f"]);
    put(&skill, "f", "2");
    assert_eq!(listener.hear().unwrap(), ["created f"]);
    remove(&skill, "d");
    assert_eq!(listener.hear().unwrap(), ["deleted d"]);
    fixture.store.skills().reset(&skill_tree("u", "s")).unwrap();
    let back = ["created d", "created d/e", "created d/e/y", "created d/x", "modified f"];
    let mut heard = listener.hear().unwrap();
    heard.sort();
    assert_eq!(heard, back);
    put(&skill, "d/x", "2");
    assert_eq!(listener.hear().unwrap(), ["modified d/x"]);
    // Another user's changes are not this one's.
    put(&fixture.skill("v", "s"), "f", "3");
    assert!(!stirs(&mut listener.watch));
    fixture.publish(Scope::Overlay, "u", "s", &Tree::of(&[("f", "mine"), ("g", "1")]));
    let mut heard = listener.hear().unwrap();
    heard.sort();
    assert_eq!(heard, ["created g", "deleted d", "modified f"]);
    put(&skill, "g", "2");
    assert_eq!(listener.hear().unwrap(), ["modified g"]);
    fixture.store.skills().reset(&skill_tree("u", "s")).unwrap();
    listener.hear().unwrap();
    fixture.baseline("s", &Tree::of(&[("f", "2")]));
    assert_eq!(listener.hear(), None);
    put(&skill, "new/g", "2");
    assert_eq!(listener.hear().unwrap(), ["created new", "created new/g"]);
    assert!(matches!(
        TreeWatch::new(fixture.store.clone(), skill_tree("u", "none"), ENTRIES_MAX),
        Err(Error::NotFound(_))
    ));
}

#[test]
fn what_commands_do_in_a_live_view_is_told_and_a_newer_baseline_when_they_have_left_it() {
    let Some(fixture) = Fixture::live(Way::Detached) else { return };
    fixture.baseline("s", &Tree::of(&[("f", "1"), ("d/x", "1")]));
    let mut listener = Listener::new(&fixture, &skill_tree("u", "s"));
    let command = fixture.command(&skill_tree("u", "s"));
    let dir = command.tree();
    std::fs::write(dir.join("f"), "22").unwrap();
    assert_eq!(listener.hear().unwrap(), ["modified f"]);
    std::fs::create_dir_all(dir.join("d/甲/b")).unwrap();
    std::fs::write(dir.join("d/甲/b/c"), "1").unwrap();
    assert_eq!(listener.hear().unwrap(), ["created d/甲", "created d/甲/b", "created d/甲/b/c"]);
    put(&fixture.skill("u", "s"), "d/甲/b/c", "by the service");
    assert_eq!(listener.hear().unwrap(), ["modified d/甲/b/c"]);
    std::fs::remove_dir_all(dir.join("d")).unwrap();
    assert_eq!(listener.hear().unwrap(), ["deleted d"]);
    fixture.baseline("s", &Tree::of(&[("f", "2"), ("g", "2")]));
    assert_eq!(listener.hear(), None);
    assert!(listener.watch.is_held());
    drop(command);
    fixture.store.close_views().unwrap();
    assert!(listener.watch.look().unwrap().is_rebased && !listener.watch.is_held());
}

#[test]
fn a_tree_that_is_too_large_is_refused_and_one_that_becomes_it_too() {
    let fixture = Fixture::new();
    let files = fixture.workspace("u");
    for name in ["1", "2", "3"] {
        put(&files, name, "1");
    }
    let watch = |most| TreeWatch::new(fixture.store.clone(), workspace("u"), most);
    assert!(matches!(watch(2), Err(Error::TooManyEntries(2))));
    let mut watch = watch(3).unwrap();
    put(&files, "4", "1");
    assert!(watch.read().unwrap() && watch.has_notices());
    assert!(matches!(watch.look(), Err(Error::TooManyEntries(3))));
}

/// Each level took the stack of the thread, and a command can make more levels than a stack holds.
#[test]
fn a_tree_that_is_too_deep_is_refused_and_one_that_becomes_it_too() {
    let fixture = Fixture::new();
    put(&fixture.workspace("u"), "file", "1");
    let watch = || TreeWatch::new(fixture.store.clone(), workspace("u"), ENTRIES_MAX);
    let mut watching = watch().unwrap();
    let dir = fixture.root().join("sandbox/u").join(agent().as_str());
    std::fs::create_dir_all(dir.join("d/".repeat(1500))).unwrap();
    assert!(watching.read().unwrap() && watching.has_notices());
    assert!(matches!(watching.look(), Err(Error::TooManyEntries(128))));
    assert!(matches!(watch(), Err(Error::TooManyEntries(128))));
}

/// Does something at random, as requests do or as commands do.
fn act(random: &mut Random, files: &Files, dir: Option<&Path>) {
    const NAMES: [&str; 9] = ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "数据"];
    let (one, other) = (random.pick(&NAMES).to_owned(), random.pick(&NAMES).to_owned());
    let text = random.text();
    match dir.filter(|dir| dir.is_dir() && random.chance(50)) {
        // What cannot be done is not done.
        Some(dir) => drop(match random.below(6) {
            0 | 1 => std::fs::write(dir.join(&one), text),
            2 => std::fs::create_dir_all(dir.join(&one)),
            3 => std::fs::rename(dir.join(&one), dir.join(&other)),
            4 => std::fs::remove_dir_all(dir.join(&one)),
            _ => std::fs::remove_file(dir.join(&one)),
        }),
        None => drop(match random.below(6) {
            0..=2 => {
                let mut file = files.stage().unwrap();
                file.write(text.as_bytes()).unwrap();
                let options = storage::WriteOptions { parents: true, ..Default::default() };
                files.write(&path(&one), file, &options).map(drop)
            }
            3 => files.make_dir(&path(&one), 0o755, true).map(drop),
            4 => files.rename(&path(&one), &path(&other), true, &Condition::Always).map(drop),
            _ => files.remove(&path(&one), true, &Condition::Always).map(drop),
        }),
    }
}

#[test]
fn whatever_happens_what_was_told_put_together_is_what_is_there() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let fixture = Fixture::live(Way::Detached).unwrap_or_else(Fixture::new);
        fixture.baseline("s", &Tree::of(&[("a", "1"), ("d/a", "1"), ("d/e/a", "1"), ("d/e/b", "1")]));
        let mut command = None;
        for id in [workspace("u"), skill_tree("u", "s")] {
            let files = fixture.store.files(id.clone());
            let mut listener = Listener::new(&fixture, &id);
            for step in 0..400 {
                let dir = match &id {
                    TreeId::Workspace(..) => Some(fixture.root().join("sandbox/u/agent")),
                    TreeId::Skill(..) => {
                        if fixture.store.live().is_ok() && random.chance(5) {
                            command = match command.take() {
                                None => fixture
                                    .store
                                    .files(id.clone())
                                    .stat(&RelPath::root())
                                    .ok()
                                    .map(|_| fixture.command(&id)),
                                Some(_) => None,
                            };
                        }
                        command.as_ref().map(|command: &fixture::live::Command| command.tree())
                    }
                };
                act(&mut random, &files, dir.as_deref());
                if step % 7 == 0 || random.chance(20) {
                    listener.hear();
                }
            }
            listener.hear();
            command = None;
        }
    }
}
