//! Laws of project quotas: where the file system has them, the kernel keeps each tree within its limit, and everything that
//! the service does goes on as without them.
//!
//! They run where temporary directories are on such a file system, mounted with `prjquota`
//! (`scripts/test-kernel 6.12 quota`).

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fixture::live::{WAYS, Way};
use crate::fixture::{self, Fixture, Tree, agent, path, put, read, relaxed, skill_tree, user_id};
use exec::projects::{self, Allotment};
use policy::{DiskLimits, Scope, TreeId, WorkspaceId};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use storage::{Condition, Error, Options, Placement, PreparedRun, Project, ProjectQuotas, SnapshotNote, Use};

const LIMITS: Use = Use { bytes: 8 * 1024 * 1024, files: 300 };
/// What a mounted skill may take beyond its limit.
const VIEW_MARGIN: Use = Use { bytes: 16 * 1024 * 1024, files: 1000 };

fn limited() -> Options {
    let disk =
        DiskLimits { bytes: LIMITS.bytes, files: LIMITS.files, free_bytes: 0, ..DiskLimits::default() };
    Options { disk, ..relaxed() }
}

/// A store on a file system whose kernel keeps quotas; `None`, said loudly, where it does not.
fn fixture() -> Option<Fixture> {
    kept(Fixture::with(limited()))
}

fn kept(fixture: Fixture) -> Option<Fixture> {
    match fixture.store.kernel_keeps_quotas() {
        Ok(()) => Some(fixture),
        Err(reason) => {
            fixture::skip("project-quota", reason);
            None
        }
    }
}

/// The same with live views as every kernel can hold them.
fn mounted() -> Option<Fixture> {
    live(Way::Attached)
}

fn live(way: Way) -> Option<Fixture> {
    // First, so that it is said where no way is to be had.
    fixture()?;
    Fixture::live_with(way, limited())
}

fn workspace(user: &str) -> TreeId {
    TreeId::Workspace(user_id(user), agent())
}

fn sandbox(user: &str) -> WorkspaceId {
    WorkspaceId::of(&workspace(user))
}

impl Fixture {
    fn places(&self, user: &str) -> [PathBuf; 2] {
        ["sandbox", ".filesecbox/packages"].map(|place| self.root().join(place).join(user).join("agent"))
    }

    fn begin(&self, id: &TreeId) -> PreparedRun {
        self.store.runs().plan(id, Placement::Mounted, &[]).unwrap().prepare().unwrap()
    }

    fn allotment(&self, id: u32) -> Allotment {
        projects::allotment(open(self.root()).as_fd(), id).unwrap()
    }
}

fn open(at: &Path) -> fs::File {
    fs::File::open(at).unwrap()
}

/// The project that a directory is marked with, or 0.
fn marked(at: &Path) -> u32 {
    let project = projects::project_of(open(at).as_fd()).unwrap();
    if project.is_inherited { project.id } else { 0 }
}

/// Inode numbers of everything in `dir` and of itself.
fn inodes(dir: &Path, found: &mut HashSet<u64>) {
    found.insert(fs::symlink_metadata(dir).unwrap().ino());
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        found.insert(metadata.ino());
        if metadata.is_dir() {
            inodes(&entry.path(), found);
        }
    }
}

/// Everything in `dirs` is of one project, and nothing else is: the kernel counts links and whiteouts, too, which do not tell
/// their project.
#[track_caller]
fn assert_one_project(fixture: &Fixture, dirs: &[&Path]) -> u32 {
    fixture.wait_for_empty_trash();
    let id = marked(dirs[0]);
    assert_ne!(id, 0, "{:?} is not marked", dirs[0]);
    let mut found = HashSet::new();
    for dir in dirs {
        assert_eq!(marked(dir), id, "{dir:?}");
        inodes(dir, &mut found);
    }
    assert_eq!(fixture.allotment(id).files, u64::try_from(found.len()).unwrap(), "{dirs:?}");
    id
}

/// Does `act` with the capabilities of a command: the kernel exempts the service from limits.
fn as_command<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let privileged = || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective -= CapabilitySet::SYS_RESOURCE;
        rustix::thread::set_capabilities(None, sets).unwrap();
        act()
    };
    std::thread::scope(|scope| scope.spawn(privileged).join()).unwrap()
}

/// Fills the file `at` until the kernel refuses, or it has far more than it may. Tells how many bytes went in.
fn fill(at: &Path) -> (u64, Option<Errno>) {
    let piece = [b'x'; 64 * 1024];
    let mut file = fs::File::create(at).unwrap();
    let mut written = 0;
    while written < 4 * (LIMITS.bytes + VIEW_MARGIN.bytes) {
        match file.write(&piece) {
            Ok(bytes) => written += u64::try_from(bytes).unwrap(),
            Err(error) => return (written, error.raw_os_error().map(Errno::from_raw_os_error)),
        }
    }
    (written, None)
}

#[test]
fn a_command_takes_no_more_than_its_workspace_and_home_may_together() {
    let Some(fixture) = fixture() else { return };
    let run = fixture.begin(&workspace("u"));
    let [workspace_dir, home] = fixture.places("u");
    let id = assert_one_project(&fixture, &[&workspace_dir, &home]);
    let limits = fixture.allotment(id);
    assert_eq!((limits.bytes_limit, limits.files_limit), (LIMITS.bytes, LIMITS.files));
    as_command(|| {
        let (first, _) = fill(&home.join("half"));
        assert!(first <= LIMITS.bytes);
        fs::OpenOptions::new()
            .write(true)
            .open(home.join("half"))
            .unwrap()
            .set_len(LIMITS.bytes / 2)
            .unwrap();
        let (second, refused) = fill(&workspace_dir.join("rest"));
        assert_eq!(refused, Some(Errno::DQUOT));
        assert!(second <= LIMITS.bytes / 2, "{second}");
        // A file without a name counts as long as it is open.
        let held = open(&workspace_dir.join("rest"));
        fs::remove_file(workspace_dir.join("rest")).unwrap();
        assert!(fill(&workspace_dir.join("again")).0 < second / 2);
        drop(held);
        fs::remove_file(workspace_dir.join("again")).unwrap();
        let made = (0..2 * LIMITS.files)
            .take_while(|number| fs::write(workspace_dir.join(format!("n{number}")), "").is_ok());
        assert!(u64::try_from(made.count()).unwrap() < LIMITS.files);
    });
    drop(run);
    assert!(fixture.store.usage(&workspace("u")).unwrap().bytes <= LIMITS.bytes);
    // The service itself counts, and is not bound: it may always put what fits in the place of what is there.
    let files = fixture.workspace("u");
    for number in 0..10 {
        files.remove(&path(&format!("n{number}")), false, &Condition::Always).unwrap();
    }
    put(&files, "kept", &"k".repeat(1 << 20));
    put(&files, "kept", &"l".repeat(1 << 20));
    assert_one_project(&fixture, &[&workspace_dir, &home]);
}

#[test]
fn a_command_takes_no_more_than_a_mounted_skill_may() {
    for way in WAYS {
        let Some(fixture) = live(way) else { continue };
        let mut tree = Tree::of(&[("a", "1"), ("dir/b", "1"), ("dir/c", "1")]);
        tree.file("run.sh", "echo", 0o755);
        fixture.baseline("s", &tree);
        let command = fixture.command(&skill_tree("u", "s"));
        let upper = fixture.overlay_path("u").join("s");
        let id = marked(&upper);
        assert_ne!(id, 0);
        let seen = command.tree();
        as_command(|| {
            let (written, refused) = fill(&seen.join("big"));
            assert_eq!(refused, Some(Errno::DQUOT), "{way:?}");
            assert!(written <= LIMITS.bytes + VIEW_MARGIN.bytes, "{way:?}: {written}");
            fs::remove_file(seen.join("big")).unwrap();
            // What overlayfs makes in its work directory goes to its place.
            fs::remove_file(seen.join("a")).unwrap();
            fs::write(seen.join("a"), "2").unwrap();
            fs::remove_dir_all(seen.join("dir")).unwrap();
            fs::create_dir(seen.join("dir")).unwrap();
            fs::write(seen.join("dir/b"), "2").unwrap();
            fs::rename(seen.join("dir/b"), seen.join("run.sh")).unwrap();
            symlink("a", seen.join("link")).unwrap();
            fs::rename(seen.join("link"), seen.join("dir/link")).unwrap();
        });
        let files = fixture.skill("u", "s");
        put(&files, "beside/new", "1");
        files.remove(&path("run.sh"), false, &Condition::Always).unwrap();
        drop(command);
        fixture.store.close_views().unwrap();
        assert_one_project(&fixture, &[&upper]);
        assert_eq!(read(&files, "a").unwrap(), "2");
        assert!(read(&files, "run.sh").is_err());
    }
}

#[test]
fn a_command_on_a_copy_takes_no_more_than_could_be_taken_in() {
    let Some(fixture) = fixture() else { return };
    with_baseline(&fixture);
    put(&fixture.workspace("u"), "there", &"t".repeat(3 << 20));
    put(&fixture.skill("u", "s"), "there", &"t".repeat(3 << 20));
    for tree in [workspace("u"), skill_tree("u", "s")] {
        let run = fixture.store.runs().plan(&tree, Placement::InPlace, &[]).unwrap().aside().unwrap();
        let run = run.prepare().unwrap();
        let copy = run.view().tree.clone();
        let id = marked(&copy);
        let (written, refused) = as_command(|| fill(&copy.join("big")));
        assert_eq!(refused, Some(Errno::DQUOT), "{tree:?}");
        assert!(written <= LIMITS.bytes - (3 << 20), "{tree:?}: {written}");
        fs::remove_file(copy.join("big")).unwrap();
        fs::write(copy.join("small"), "1").unwrap();
        assert_eq!(run.absorb().unwrap().created, 1);
        drop(run);
        fixture.wait_for_empty_trash();
        assert_eq!(fixture.allotment(id), Allotment::default());
    }
}

/// Changes a skill and a workspace of `u` in every way that requests have, through either way that is open.
fn change_everything(fixture: &Fixture) {
    let id = skill_tree("u", "s");
    let files = fixture.skill("u", "s");
    put(&files, "dir/b", "mine");
    put(&files, "new/deep/file", "1");
    files.remove(&path("a"), false, &Condition::Always).unwrap();
    put(&files, "a", "again");
    files.remove(&path("gone"), true, &Condition::Always).unwrap();
    files.make_dir(&path("gone"), 0o755, false).unwrap();
    files.rename(&path("moved"), &path("moved2"), false, &Condition::Always).unwrap();
    files.rename(&path("dir/b"), &path("new/b"), false, &Condition::Always).unwrap();
    files.rename(&path("new"), &path("newer"), false, &Condition::Always).unwrap();
    files.rename(&path("leaf"), &path("newer/leaf"), false, &Condition::Always).unwrap();
    files.copy(&path("moved2"), &path("copied"), false, true, &Condition::Always).unwrap();
    files.make_dir(&path("made"), 0o755, false).unwrap();
    let work = fixture.workspace("u");
    put(&work, "src/main", "1");
    put(&work, "src/main", "2");
    work.make_dir(&path("empty/dir"), 0o755, true).unwrap();
    work.copy(&path("src"), &path("copied"), false, true, &Condition::Always).unwrap();
    work.rename(&path("copied"), &path("empty/dir/copied"), false, &Condition::Always).unwrap();
    work.remove(&path("src"), true, &Condition::Always).unwrap();
    // What a run did aside is taken in file by file.
    for tree in [&id, &workspace("u")] {
        let run = fixture.store.runs().plan(tree, Placement::InPlace, &[]).unwrap().aside().unwrap();
        let run = run.prepare().unwrap();
        let copy = &run.view().tree;
        fs::create_dir_all(copy.join("of/command")).unwrap();
        fs::write(copy.join("of/command/file"), "1").unwrap();
        symlink("command", copy.join("of/link")).unwrap();
        let absorbed = run.absorb().unwrap();
        assert_eq!((absorbed.refused, absorbed.skipped), (None, vec![]));
    }
    files.remove(&path("made"), true, &Condition::Always).unwrap();
}

fn with_baseline(fixture: &Fixture) {
    let leaves =
        [("a", "1"), ("dir/b", "1"), ("gone/x", "1"), ("moved/x/y", "1"), ("moved/z", "1"), ("leaf", "1")];
    fixture.baseline("s", &Tree::of(&leaves));
}

fn assert_changed(fixture: &Fixture) {
    let expected = [
        ("a", "again"),
        ("newer/b", "mine"),
        ("newer/deep/file", "1"),
        ("newer/leaf", "1"),
        ("moved2/x/y", "1"),
        ("copied/z", "1"),
        ("of/command/file", "1"),
    ];
    for (at, text) in expected {
        assert_eq!(read(&fixture.skill("u", "s"), at).unwrap(), text, "{at}");
    }
    assert!(read(&fixture.skill("u", "s"), "leaf").is_err());
    assert_eq!(read(&fixture.workspace("u"), "empty/dir/copied/main").unwrap(), "2");
}

#[test]
fn whatever_requests_do_a_tree_stays_of_one_project() {
    for way in [None, Some(Way::Attached), Some(Way::Detached), Some(Way::Owners)] {
        let Some(fixture) = way.map_or_else(fixture, live) else { continue };
        with_baseline(&fixture);
        // Marked before the first change, as by a run.
        drop(fixture.begin(&workspace("u")));
        put(&fixture.skill("u", "s"), "first", "1");
        let upper = fixture.overlay_path("u").join("s");
        if way.is_some() {
            drop(fixture.command(&skill_tree("u", "s")));
        }
        change_everything(&fixture);
        assert_changed(&fixture);
        fixture.store.close_views().unwrap();
        let [workspace_dir, home] = fixture.places("u");
        let of_sandbox = assert_one_project(&fixture, &[&workspace_dir, &home]);
        if way.is_none() {
            continue;
        }
        let of_skill = assert_one_project(&fixture, &[&upper]);
        assert_ne!(of_sandbox, of_skill);
        // Changed again without a view, in a tree that is marked.
        files_without_a_view(&fixture);
        assert_one_project(&fixture, &[&upper]);
    }
}

fn files_without_a_view(fixture: &Fixture) {
    let files = fixture.skill("u", "s");
    put(&files, "direct/file", "1");
    files.remove(&path("copied"), true, &Condition::Always).unwrap();
    files.remove(&path("dir"), true, &Condition::Always).unwrap();
    files.make_dir(&path("dir"), 0o755, false).unwrap();
    files.rename(&path("direct"), &path("dir/direct"), false, &Condition::Always).unwrap();
    files.copy(&path("moved2"), &path("copied"), false, true, &Condition::Always).unwrap();
    put(&files, "copied/z", "over");
}

#[test]
fn a_tree_from_before_is_given_to_a_project_by_the_first_run_in_it() {
    let Some(options) = Way::Attached.options(Options { projects: None, ..limited() }) else { return };
    let before = Fixture::with(options.clone());
    with_baseline(&before);
    change_everything(&before);
    put(&before.skill("u", "s"), "more", "1");
    before.skill("u", "s").remove(&path("more"), false, &Condition::Always).unwrap();
    let upper = before.overlay_path("u").join("s");
    symlink("a", upper.join("link")).unwrap();
    before.store.close_views().unwrap();
    let reopened = before.reopened(Options { projects: relaxed().projects, ..options });
    let Some(fixture) = kept(reopened) else { return };
    let [workspace_dir, home] = fixture.places("u");
    assert_eq!([marked(&upper), marked(&workspace_dir)], [0, 0]);
    // As a service leaves it that dies in the middle: some of it is of a project that no tree has any more.
    for (number, part) in [upper.join("newer"), workspace_dir.join("empty")].iter().enumerate() {
        let id = 0x1234_5678 + u32::try_from(number).unwrap();
        projects::set_project(open(part).as_fd(), projects::Project { id, is_inherited: true }).unwrap();
    }
    put(&fixture.skill("u", "s"), "newer/late", "1");
    put(&fixture.workspace("u"), "empty/late", "1");
    fixture.workspace("u").make_dir(&path("top"), 0o755, false).unwrap();
    let rename = fixture.workspace("u").rename(&path("top"), &path("empty/top"), false, &Condition::Always);
    rename.unwrap();
    let command = fixture.command(&skill_tree("u", "s"));
    // Of links and whiteouts, too: the kernel would let none of them be moved.
    fs::rename(command.tree().join("link"), command.tree().join("newer/link")).unwrap();
    fs::write(command.tree().join("leaf"), "over a whiteout").unwrap();
    drop(command);
    drop(fixture.begin(&workspace("u")));
    fixture.store.close_views().unwrap();
    assert_one_project(&fixture, &[&upper]);
    assert_one_project(&fixture, &[&workspace_dir, &home]);
    assert_eq!(read(&fixture.workspace("u"), "empty/late").unwrap(), "1");
    assert_eq!(read(&fixture.skill("u", "s"), "newer/late").unwrap(), "1");
    assert_eq!([0x1234_5678, 0x1234_5679].map(|id| fixture.allotment(id).files), [0, 0]);
}

#[test]
fn what_takes_the_place_of_a_whole_tree_is_kept_within_the_limit_too() {
    let Some(fixture) = mounted() else { return };
    put(&fixture.workspace("u"), "a", "1");
    drop(fixture.begin(&workspace("u")));
    let [workspace_dir, home] = fixture.places("u");
    let first = assert_one_project(&fixture, &[&workspace_dir, &home]);
    let snapshot = fixture.store.snapshots().take(&sandbox("u"), SnapshotNote::default()).unwrap();
    put(&fixture.workspace("u"), "b", "1");
    drop(fixture.store.snapshots().restore(&sandbox("u"), &snapshot.id).unwrap());
    assert_eq!(assert_one_project(&fixture, &[&workspace_dir, &home]), first);
    drop(fixture.store.snapshots().fork(&sandbox("u"), &snapshot.id, &sandbox("v"), false).unwrap());
    drop(fixture.begin(&workspace("v")));
    let [forked, forked_home] = fixture.places("v");
    assert_ne!(assert_one_project(&fixture, &[&forked, &forked_home]), first);
    // An upload is another tree, with a project of its own, and the former one ends.
    let uploaded =
        |text: &str| drop(fixture.publish(Scope::Overlay, "u", "own", &Tree::of(&[("x/y", text)])));
    uploaded("1");
    let upper = fixture.overlay_path("u").join("own");
    drop(fixture.command(&skill_tree("u", "own")));
    fixture.store.close_views().unwrap();
    let former = assert_one_project(&fixture, &[&upper]);
    assert_ne!(fixture.allotment(former).bytes_limit, 0);
    uploaded("2");
    assert_ne!(assert_one_project(&fixture, &[&upper]), former);
    assert_eq!(fixture.allotment(former), Allotment::default());
}

#[test]
fn the_limits_of_what_is_removed_are_taken_off_and_a_run_that_leaves_nothing_leaves_none() {
    let Some(fixture) = mounted() else { return };
    with_baseline(&fixture);
    drop(fixture.begin(&workspace("u")));
    let id = marked(&fixture.places("u")[0]);
    assert_ne!(fixture.allotment(id), Allotment::default());
    let (was_there, leftovers) = fixture.store.workspaces().remove(&sandbox("u"), true).unwrap();
    assert!(was_there);
    drop(leftovers);
    fixture.wait_for_empty_trash();
    assert_eq!(fixture.allotment(id), Allotment::default());
    let command = fixture.command(&skill_tree("u", "s"));
    let id = marked(&fixture.overlay_path("u").join("s"));
    drop(command);
    fixture.store.close_views().unwrap();
    assert!(!fixture.overlay_path("u").join("s").exists());
    assert_eq!(fixture.allotment(id), Allotment::default());
}

#[test]
fn another_limit_in_the_configuration_holds_from_the_next_run_on() {
    let Some(fixture) = fixture() else { return };
    drop(fixture.begin(&workspace("u")));
    let id = marked(&fixture.places("u")[0]);
    let disk = DiskLimits { bytes: 2 * LIMITS.bytes, files: 77, ..limited().disk };
    let fixture = fixture.reopened(Options { disk, ..limited() });
    drop(fixture.begin(&workspace("u")));
    let limits = fixture.allotment(id);
    assert_eq!((limits.bytes_limit, limits.files_limit), (2 * LIMITS.bytes, 77));
}

/// A kernel that has projects and keeps no limits, as after a mount without `prjquota`.
#[derive(Debug)]
struct WithoutLimits(Arc<dyn ProjectQuotas>);

impl ProjectQuotas for WithoutLimits {
    fn project_of(&self, file: BorrowedFd<'_>) -> io::Result<Project> {
        self.0.project_of(file)
    }
    fn set_project(&self, file: BorrowedFd<'_>, project: Project) -> io::Result<()> {
        self.0.set_project(file, project)
    }
    fn taken(&self, _: BorrowedFd<'_>, _: u32) -> io::Result<Use> {
        Err(Errno::SRCH.into())
    }
    fn allot(&self, _: BorrowedFd<'_>, _: u32, _: Use) -> io::Result<()> {
        Err(Errno::SRCH.into())
    }
}

#[test]
fn trees_that_are_marked_can_be_changed_where_the_kernel_keeps_no_limits_any_more() {
    let Some(fixture) = mounted() else { return };
    with_baseline(&fixture);
    put(&fixture.skill("u", "s"), "first", "1");
    drop(fixture.command(&skill_tree("u", "s")));
    drop(fixture.begin(&workspace("u")));
    fixture.store.close_views().unwrap();
    let projects: Option<Arc<dyn ProjectQuotas>> = Some(Arc::new(WithoutLimits(relaxed().projects.unwrap())));
    let options = Way::Attached.options(Options { projects, ..limited() }).unwrap();
    let fixture = fixture.reopened(options);
    let reason = fixture.store.kernel_keeps_quotas().unwrap_err();
    assert!(reason.contains("prjquota"), "{reason}");
    let command = fixture.command(&skill_tree("u", "s"));
    fs::remove_file(command.tree().join("moved/z")).unwrap();
    fs::write(command.tree().join("moved/z"), "1").unwrap();
    drop(command);
    fixture.store.close_views().unwrap();
    change_everything(&fixture);
    assert_changed(&fixture);
}

#[test]
fn what_the_kernel_refuses_the_service_is_a_quota_in_its_own_words() {
    let Some(fixture) = mounted() else { return };
    fixture.baseline("s", &Tree::of(&[("a", "1")]));
    let _command = fixture.command(&skill_tree("u", "s"));
    let id = marked(&fixture.overlay_path("u").join("s"));
    projects::allot(open(fixture.root()).as_fd(), id, 64 * 1024, 0).unwrap();
    let files = fixture.skill("u", "s");
    let mut staged = files.stage().unwrap();
    let of_bytes = (0..100).find_map(|_| staged.write(&[b'x'; 4096]).err()).unwrap();
    projects::allot(open(fixture.root()).as_fd(), id, 0, 4).unwrap();
    let made = |number| files.make_dir(&path(&format!("d{number}")), 0o755, false);
    let of_files = (0..10).find_map(|number| made(number).err()).unwrap();
    for told in [of_bytes, of_files] {
        assert!(matches!(told, Error::Quota { .. }), "{told:?}");
        let words = format!("{told}");
        assert!(words.starts_with("/workspace/skills/s takes") && words.contains("`limits.disk."), "{words}");
    }
}
