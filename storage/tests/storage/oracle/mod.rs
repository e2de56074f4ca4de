//! The merged view against two other opinions: the kernel's own overlayfs on the same directories, and a map.
//!
//! Random sequences of operations go through the store; then the kernel mounts the very same layers and must see
//! the same tree. Then operations go through the mount, and the store must see the same tree; and so on.
//!
//! [`life`] adds all that can happen to a skill (new baselines, promotions, pulls, runs set aside), [`workspaces`] snapshots
//! and forks; [`layers`] is the model of the merge.
//!
//! * `FILESECBOX_ORACLE_SEQUENCES`: how many sequences (300 unless told, of those with live views 60).
//! * `FILESECBOX_ORACLE_SEED`: the seed of the one sequence to repeat; a failure names it.
mod layers;
mod life;
mod workspaces;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::fixture::kernel::KernelView;
use crate::fixture::live::{Command, WAYS, Way};
use crate::fixture::random::Random;
use crate::fixture::{
    self, Fixture, KERNEL_ATTRIBUTES, Node, Tree, assert_valid_upper, path, skill_tree, write,
};
use policy::Scope;
use storage::{Condition, Error, Files, WriteOptions};

const SKILLS: [&str; 4] = ["alpha", "beta", "数据分析", "new"];
const NAMES: [&str; 9] = ["a", "b", "c.txt", "数据", "表 格.md", ".wh.a", ".wh..wh..opq", "run.sh", "深"];
const FILE_MODES: [u32; 4] = [0o644, 0o755, 0o600, 0o640];
const DIR_MODES: [u32; 3] = [0o755, 0o700, 0o750];
const USER: &str = "u";

/// What each skill should be; a skill that is not there is missing.
type Model = BTreeMap<&'static str, Tree>;

fn random_tree(random: &mut Random, nodes: usize) -> Tree {
    let mut tree = Tree::default();
    for _ in 0..nodes {
        let at = random_path(random, &tree);
        match random.below(10) {
            _ if tree.nodes.contains_key(&at) || !is_free(&tree, &at) => {}
            0..3 => drop(tree.dir(&at, DIR_MODES[random.below(3)])),
            3 => drop(
                tree.link(&at, random.pick(&["a", "../b", "/nonexistent/target", "nowhere/x", "数据/c.txt"])),
            ),
            _ => drop(tree.file(&at, &random.text(), FILE_MODES[random.below(4)])),
        }
    }
    tree
}

/// A path that exists, or a new one in a directory that exists, or one deeper still; never through a link.
fn random_path(random: &mut Random, tree: &Tree) -> String {
    for _ in 0..20 {
        let existing = tree.nodes.keys().nth(random.below(tree.nodes.len() + 1));
        let mut at = existing.cloned().unwrap_or_default();
        if at.is_empty() || random.chance(40) {
            for _ in 0..1 + random.below(2) {
                at = format!("{at}/{}", random.pick(&NAMES)).trim_start_matches('/').to_owned();
            }
        }
        if !ancestors(&at).any(|at| matches!(tree.nodes.get(at), Some(Node::Link { .. }))) {
            return at;
        }
    }
    "a".to_owned()
}

/// A path that only the baseline has, in a directory that is there.
fn hidden_path(random: &mut Random, tree: &Tree, baseline: &Tree) -> Option<String> {
    let hidden = baseline
        .nodes
        .keys()
        .filter(|at| !tree.nodes.contains_key(*at) && is_free(tree, at) && has_parent(tree, at));
    let hidden: Vec<&String> = hidden.collect();
    (!hidden.is_empty()).then(|| hidden[random.below(hidden.len())].clone())
}

fn directory(random: &mut Random, tree: &Tree) -> Option<String> {
    let is_dir = |(at, node): (&String, &Node)| matches!(node, Node::Dir { .. }).then(|| at.clone());
    let directories: Vec<String> = tree.nodes.iter().filter_map(is_dir).collect();
    (!directories.is_empty()).then(|| directories[random.below(directories.len())].clone())
}

fn ancestors(at: &str) -> impl Iterator<Item = &str> {
    at.match_indices('/').map(|(slash, _)| &at[..slash])
}

/// Tells whether every ancestor that exists is a directory.
fn is_free(tree: &Tree, at: &str) -> bool {
    ancestors(at).all(|at| matches!(tree.nodes.get(at), None | Some(Node::Dir { .. })))
}

fn has_parent(tree: &Tree, at: &str) -> bool {
    ancestors(at).last().is_none_or(|at| matches!(tree.nodes.get(at), Some(Node::Dir { .. })))
}

fn below<'a>(tree: &'a Tree, at: &str) -> Vec<&'a String> {
    let prefix = format!("{at}/");
    tree.nodes.keys().filter(|key| key.starts_with(&prefix)).collect()
}

/// One operation; its meaning for the store and for the model stand side by side.
#[derive(Debug)]
enum Operation {
    Write { at: String, text: String, mode: Option<u32>, parents: bool },
    Update { at: String, text: String },
    MakeDir { at: String, mode: u32, parents: bool },
    Remove { at: String, recursive: bool },
    Rename { from: String, to: String, overwrite: bool },
    Copy { from: String, to: String, overwrite: bool, recursive: bool },
    RemoveSkill,
    Upload(Tree),
    Reset,
}

impl Operation {
    fn random(random: &mut Random, tree: &Tree, baseline: &Tree) -> Self {
        let at = match random.below(100) {
            // Where the baseline has something that is gone here, a marker is at work.
            0..25 => hidden_path(random, tree, baseline),
            25..40 => directory(random, tree),
            _ => None,
        };
        let at = at.unwrap_or_else(|| random_path(random, tree));
        let is_link = matches!(tree.nodes.get(&at), Some(Node::Link { .. }));
        match random.below(100) {
            // What a change through a link means is fixed by tests of its own.
            0..24 if !is_link => Self::Write {
                at,
                text: random.text(),
                mode: random.chance(30).then(|| FILE_MODES[random.below(4)]),
                parents: random.chance(70),
            },
            24..34 if !is_link => Self::Update { at, text: random.text() },
            34..48 if !is_link => {
                Self::MakeDir { at, mode: DIR_MODES[random.below(3)], parents: random.chance(60) }
            }
            48..68 => Self::Remove { at, recursive: random.chance(75) },
            94..96 => Self::RemoveSkill,
            96..98 => Self::Upload(random_tree(random, 6)),
            98..100 => Self::Reset,
            _ => {
                let from = if random.chance(40) { directory(random, tree).unwrap_or(at) } else { at };
                let to = if random.chance(40) { hidden_path(random, tree, baseline) } else { None };
                let to = to.unwrap_or_else(|| random_path(random, tree));
                // What a copy through a link means is fixed by tests of its own, too.
                let is_link = |at: &String| matches!(tree.nodes.get(at), Some(Node::Link { .. }));
                if random.chance(40) && !is_link(&from) && !is_link(&to) {
                    let (overwrite, recursive) = (random.chance(60), random.chance(80));
                    return Self::Copy { from, to, overwrite, recursive };
                }
                Self::Rename { from, to, overwrite: random.chance(60) }
            }
        }
    }

    fn on_store(&self, fixture: &Fixture, skill: &str) -> storage::Result<()> {
        let tree = skill_tree(USER, skill);
        match self {
            Self::RemoveSkill => fixture.store.skills().remove_for_user(&tree),
            Self::Upload(content) => {
                fixture.publish(Scope::Overlay, USER, skill, content);
                Ok(())
            }
            Self::Reset => fixture.store.skills().reset(&tree).map(drop),
            operation => operation.on_files(&fixture.skill(USER, skill)),
        }
    }

    /// Does what is done to files of any tree.
    fn on_files(&self, files: &Files) -> storage::Result<()> {
        match self {
            Self::Write { at, text, mode, parents } => {
                let options = WriteOptions { mode: *mode, parents: *parents, condition: Condition::Always };
                write(files, at, text.as_bytes(), &options).map(drop)
            }
            Self::Update { at, text } => {
                let change = &mut |old: Option<&str>| Ok(format!("{}{text}", old.unwrap_or_default()));
                files.update(&path(at), &WriteOptions::default(), 1 << 20, change).map(drop)
            }
            Self::MakeDir { at, mode, parents } => files.make_dir(&path(at), *mode, *parents).map(drop),
            Self::Remove { at, recursive } => files.remove(&path(at), *recursive, &Condition::Always),
            Self::Rename { from, to, overwrite } => {
                files.rename(&path(from), &path(to), *overwrite, &Condition::Always)
            }
            Self::Copy { from, to, overwrite, recursive } => {
                files.copy(&path(from), &path(to), *overwrite, *recursive, &Condition::Always).map(drop)
            }
            Self::RemoveSkill | Self::Upload(_) | Self::Reset => panic!("{self:?} is of whole skills"),
        }
    }

    /// Does the same to the model; `Err` when nothing may change.
    fn on_model(&self, skill: &mut Option<Tree>, baseline: Option<&Tree>) -> Result<(), ()> {
        let mut tree = skill.clone().unwrap_or_default();
        match self {
            Self::Write { at, text, mode, parents } => {
                write_model(&mut tree, at, *mode, *parents, |_| text.clone())?
            }
            Self::Update { at, text } => write_model(&mut tree, at, None, false, |old| old + text)?,
            Self::MakeDir { at, mode, parents } => {
                let existing = tree.nodes.get(at);
                if *parents && matches!(existing, Some(Node::Dir { .. })) {
                    return Ok(());
                }
                if existing.is_some() || !is_free(&tree, at) || !(*parents || has_parent(&tree, at)) {
                    return Err(());
                }
                tree.dir(at, *mode);
            }
            Self::Remove { at, recursive } => {
                let inside: Vec<String> = below(&tree, at).into_iter().cloned().collect();
                if !tree.nodes.contains_key(at) || !(inside.is_empty() || *recursive) {
                    return Err(());
                }
                tree.nodes.remove(at);
                tree.nodes.retain(|key, _| !inside.contains(key));
            }
            Self::Rename { from, to, overwrite } => {
                let Some(moved) = tree.nodes.get(from).cloned() else { return Err(()) };
                let taken = match (&moved, tree.nodes.get(to)) {
                    (_, None) => false,
                    (_, Some(Node::Dir { .. })) | (Node::Dir { .. }, Some(_)) => true,
                    (_, Some(_)) => !overwrite,
                };
                if taken || path(to).starts_with(&path(from)) || !has_parent(&tree, to) {
                    return Err(());
                }
                for key in below(&tree, from).into_iter().cloned().collect::<Vec<_>>() {
                    let node = tree.nodes.remove(&key).unwrap();
                    tree.nodes.insert(format!("{to}{}", &key[from.len()..]), node);
                }
                tree.nodes.remove(from);
                tree.nodes.insert(to.clone(), moved);
            }
            Self::Copy { from, to, overwrite, recursive } => {
                let Some(copied) = tree.nodes.get(from).cloned() else { return Err(()) };
                let is_dir = matches!(copied, Node::Dir { .. });
                let taken = match tree.nodes.get(to) {
                    None => false,
                    Some(Node::Dir { .. }) => true,
                    Some(_) => is_dir || !overwrite,
                };
                let into_itself = from == to || (is_dir && path(to).starts_with(&path(from)));
                if taken || into_itself || (is_dir && !recursive) || !has_parent(&tree, to) {
                    return Err(());
                }
                for key in below(&tree, from).into_iter().cloned().collect::<Vec<_>>() {
                    let node = tree.nodes.get(&key).cloned().unwrap();
                    tree.nodes.insert(format!("{to}{}", &key[from.len()..]), node);
                }
                tree.nodes.insert(to.clone(), copied);
            }
            Self::RemoveSkill => {
                return skill.take().map(drop).ok_or(());
            }
            Self::Upload(content) => tree = content.clone(),
            Self::Reset => {
                if skill.is_none() && baseline.is_none() {
                    return Err(());
                }
                *skill = baseline.cloned();
                return Ok(());
            }
        }
        *skill = Some(tree);
        Ok(())
    }
}

fn write_model(
    tree: &mut Tree,
    at: &str,
    mode: Option<u32>,
    parents: bool,
    change: impl FnOnce(String) -> String,
) -> Result<(), ()> {
    if !is_free(tree, at) || !(parents || has_parent(tree, at)) {
        return Err(());
    }
    let (old_mode, old) = match tree.nodes.get(at) {
        None => (0o644, String::new()),
        Some(Node::File { mode, bytes }) => (*mode, String::from_utf8(bytes.clone()).unwrap()),
        Some(_) => return Err(()),
    };
    tree.file(at, &change(old), mode.unwrap_or(old_mode));
    Ok(())
}

/// Does something random to `root`, a merged view that the kernel made, as a command would.
fn change_by_command(random: &mut Random, root: &Path) -> io::Result<()> {
    let skill = root.join(SKILLS[random.below(4)]);
    match Tree::on_disk(&skill) {
        None => std::fs::create_dir(&skill),
        Some(_) if random.chance(1) => std::fs::remove_dir_all(&skill),
        Some(tree) => change_skill_by_command(random, &skill, &tree),
    }
}

/// Does something random to `skill`, of which `tree` is what was in it a moment ago.
fn change_skill_by_command(random: &mut Random, skill: &Path, tree: &Tree) -> io::Result<()> {
    let mut random_place = || {
        let at = random_path(random, tree);
        (skill.join(&at), at)
    };
    let (at, to) = (random_place().0, random_place().0);
    match random.below(20) {
        0..4 => open_itself(&at, OpenOptions::new().write(true).create(true).truncate(true))?
            .write_all(random.text().as_bytes()),
        4 | 5 => open_itself(&at, OpenOptions::new().append(true))?.write_all(random.text().as_bytes()),
        6 => open_itself(&at, OpenOptions::new().write(true))?.set_len(3),
        7 | 8 => std::fs::remove_file(&at),
        9 | 10 => std::fs::remove_dir_all(&at),
        11 | 12 => std::fs::create_dir_all(&at),
        13 => std::os::unix::fs::symlink(random.pick(&["a", "b/c.txt", "/nonexistent", "../.."]), &at),
        14 if !at.is_symlink() => {
            let modes: &[u32] = if at.is_dir() { &DIR_MODES } else { &FILE_MODES };
            std::fs::set_permissions(&at, PermissionsExt::from_mode(modes[random.below(3)]))
        }
        _ => move_as_mv_does(&at, &to),
    }
}

/// Opens `at` and nothing that it leads to: this runs as root, and a link may lead anywhere on the host.
fn open_itself(at: &Path, options: &mut OpenOptions) -> io::Result<std::fs::File> {
    let nofollow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap();
    options.custom_flags(nofollow).open(at)
}

/// Renames, or copies and removes where the kernel refuses to rename (EXDEV for directories of the lower layer).
fn move_as_mv_does(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices && !to.starts_with(from) => {
            copy_all(from, to)?;
            std::fs::remove_dir_all(from)
        }
        renamed => renamed,
    }
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = std::fs::symlink_metadata(from)?;
    if metadata.is_symlink() {
        return std::os::unix::fs::symlink(std::fs::read_link(from)?, to);
    }
    if metadata.is_file() {
        return std::fs::copy(from, to).map(drop);
    }
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy_all(&entry.path(), &to.join(entry.file_name()))?;
    }
    std::fs::set_permissions(to, metadata.permissions())
}

fn mount(fixture: &Fixture) -> KernelView {
    let upper = fixture.overlay_path(USER);
    std::fs::create_dir_all(&upper).unwrap();
    KernelView::mount(fixture.root(), &fixture.baseline_path(), &upper).unwrap()
}

/// What the kernel merges.
fn kernel_model(view: &KernelView) -> Model {
    let skills = SKILLS.into_iter();
    let model: Model =
        skills.filter_map(|skill| Some((skill, Tree::on_disk(&view.path().join(skill))?))).collect();
    let mut listed = fixture::names(&view.path());
    listed.retain(|name| !model.contains_key(name.as_str()));
    assert_eq!(listed, Vec::<String>::new(), "the kernel lists what it does not find");
    model
}

/// What we merge.
fn our_model(fixture: &Fixture) -> Model {
    let skills = SKILLS.into_iter();
    skills.filter_map(|skill| Some((skill, Tree::through(&fixture.skill(USER, skill))?))).collect()
}

#[track_caller]
fn assert_same(ours: &Model, theirs: &Model, what: &str) {
    for skill in SKILLS {
        let (ours, theirs) = (ours.get(skill), theirs.get(skill));
        assert_eq!(ours.is_some(), theirs.is_some(), "{what}: `{skill}` is there for one side only");
        let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
        for at in ours.nodes.keys().chain(theirs.nodes.keys()) {
            assert_eq!(ours.nodes.get(at), theirs.nodes.get(at), "{what}: `{at}` of `{skill}`");
        }
    }
}

/// Prints the seed when the sequence fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the failing sequence has FILESECBOX_ORACLE_SEED={}", self.0);
        }
    }
}

fn run_operations(
    fixture: &Fixture,
    random: &mut Random,
    count: usize,
    baseline: &Model,
    model: &mut Model,
    log: &mut Vec<String>,
) {
    for _ in 0..count {
        let skill = SKILLS[random.below(4)];
        let mut tree = model.remove(skill);
        let nothing = Tree::default();
        let (now, lower) = (tree.as_ref().unwrap_or(&nothing), baseline.get(skill).unwrap_or(&nothing));
        let operation = Operation::random(random, now, lower);
        log.push(format!("{skill}: {operation:?}"));
        let expected = operation.on_model(&mut tree, baseline.get(skill));
        let happened = operation.on_store(fixture, skill);
        assert_eq!(
            happened.is_ok(),
            expected.is_ok(),
            "{skill}: {operation:?} gave {happened:?}; log:\n{log:#?}"
        );
        if let Some(tree) = tree {
            model.insert(skill, tree);
        }
    }
}

fn sequence(seed: u64) {
    let _named = Named(seed);
    let random = &mut Random::new(seed);
    let fixture = Fixture::new();
    let mut baseline = Model::new();
    for skill in SKILLS.into_iter().take(1 + random.below(3)) {
        let tree = random_tree(random, 12);
        fixture.baseline(skill, &tree);
        baseline.insert(skill, tree);
    }
    let published = Tree::on_disk(&fixture.baseline_path());
    let mut model = baseline.clone();
    let mut log = Vec::new();
    // Nothing of the kernel's is in the overlay before it first mounted it.
    for allowed in [&[], &KERNEL_ATTRIBUTES[..]] {
        run_operations(&fixture, random, 20, &baseline, &mut model, &mut log);
        let ours = our_model(&fixture);
        assert_same(&ours, &model, "store against model");
        assert_valid_upper(&fixture.overlay_path(USER), allowed);
        assert_same(&ours, &kernel_model(&mount(&fixture)), "store against kernel");
    }
    assert_valid_upper(&fixture.overlay_path(USER), &KERNEL_ATTRIBUTES);

    // The other direction: what commands do through a mount, we read.
    let view = mount(&fixture);
    for _ in 0..15 {
        // Many of these are refused by the kernel, which is as good.
        let _ = change_by_command(random, &view.path());
    }
    model = kernel_model(&view);
    drop(view);
    assert_same(&our_model(&fixture), &model, "store against what the kernel wrote");

    // And on top of what the kernel left, our own again.
    run_operations(&fixture, random, 10, &baseline, &mut model, &mut log);
    let ours = our_model(&fixture);
    assert_same(&ours, &model, "store against model, after the kernel");
    assert_same(&ours, &kernel_model(&mount(&fixture)), "store against kernel, after the kernel");
    assert_eq!(Tree::on_disk(&fixture.baseline_path()), published, "the baseline changed");

    // A run's copy is a third reading of the same layers.
    for (skill, tree) in &model {
        let run = fixture.store.runs().prepare(&skill_tree(USER, skill)).unwrap();
        assert_eq!(Tree::on_disk(&run.view().tree).as_ref(), Some(tree), "materialised `{skill}`");
    }

    // The baseline moves on under the overlay: no model, but the kernel still has an opinion.
    let skill = SKILLS[random.below(3)];
    fixture.baseline(skill, &random_tree(random, 12));
    assert_same(&our_model(&fixture), &kernel_model(&mount(&fixture)), "store against kernel, new baseline");
    fixture.assert_swept();
}

#[test]
fn the_merged_view_is_what_the_kernel_merges_over_random_operations() {
    let probe = Fixture::new();
    probe.baseline("alpha", &Tree::of(&[("a", "1")]));
    std::fs::create_dir_all(probe.overlay_path(USER)).unwrap();
    if let Err(errno) = KernelView::mount(probe.root(), &probe.baseline_path(), &probe.overlay_path(USER)) {
        return fixture::skip("overlayfs", &errno.to_string());
    }
    if let Ok(seed) = std::env::var("FILESECBOX_ORACLE_SEED") {
        return sequence(seed.parse().unwrap());
    }
    let sequences = std::env::var("FILESECBOX_ORACLE_SEQUENCES");
    let sequences: u64 = sequences.ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    // Fixed seeds: the same code gives the same result. More sequences are other ones, too.
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || (0..sequences).filter(|seed| seed % 2 == half).for_each(sequence));
        }
    });
}

/// As [`sequence`], with commands in live views all the while: store, mount and model must agree at any moment.
fn live_sequence(seed: u64, way: Way) {
    let _named = Named(seed);
    let random = &mut Random::new(seed);
    let Some(fixture) = Fixture::live(way) else { return };
    let mut baseline = Model::new();
    for skill in SKILLS.into_iter().take(1 + random.below(3)) {
        let tree = random_tree(random, 12);
        fixture.baseline(skill, &tree);
        baseline.insert(skill, tree);
    }
    let mut model = baseline.clone();
    let mut log = Vec::new();
    for _ in 0..4 {
        // Some skills are gone, and some are replaced in what follows; those views belong to no tree any more then.
        let commands: Vec<(&str, Command)> =
            model.keys().map(|skill| (*skill, fixture.command(&skill_tree(USER, skill)))).collect();
        run_operations(&fixture, random, 12, &baseline, &mut model, &mut log);
        assert_same(&our_model(&fixture), &model, "store against model, mounted");
        drop(commands);
        let commands: Vec<(&str, Command)> =
            model.keys().map(|skill| (*skill, fixture.command(&skill_tree(USER, skill)))).collect();
        let mounted =
            || commands.iter().filter_map(|(skill, command)| Some((*skill, Tree::on_disk(&command.tree())?)));
        assert_same(&mounted().collect(), &model, "mount against model");
        for (skill, command) in &commands {
            for _ in 0..4 {
                // Many of these are refused by the kernel, which is as good.
                let _ = change_skill_by_command(random, &command.tree(), &model[skill]);
            }
        }
        model = mounted().collect();
        assert_same(&our_model(&fixture), &model, "store against what commands wrote, mounted");
    }
    fixture.store.close_views().unwrap();
    assert_unmounted(&fixture, &model);
}

/// What must hold of what live views leave.
#[track_caller]
fn assert_unmounted(fixture: &Fixture, model: &Model) {
    let ours = our_model(fixture);
    assert_same(&ours, model, "store against model, unmounted");
    assert_valid_upper(&fixture.overlay_path(USER), &KERNEL_ATTRIBUTES);
    assert_same(&ours, &kernel_model(&mount(fixture)), "store against kernel, unmounted");
    let temporary = |at: &&String| at.contains(".filesecbox");
    assert_eq!(ours.values().flat_map(|tree| tree.nodes.keys()).find(temporary), None);
    fixture.assert_swept();
}

/// Requests and a command change one skill at the same time. The outcome is open, but all readers must agree.
fn live_race(seed: u64, way: Way) {
    let _named = Named(seed);
    let random = &mut Random::new(seed);
    let Some(fixture) = Fixture::live(way) else { return };
    let content = random_tree(random, 20);
    fixture.baseline("alpha", &content);
    let command = fixture.command(&skill_tree(USER, "alpha"));
    let [mut requests, mut commands] = [seed * 2 + 1, seed * 2 + 2].map(Random::new);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..60 {
                let tree = Tree::through_racing(&fixture.skill(USER, "alpha"));
                match Operation::random(&mut requests, &tree, &content) {
                    Operation::RemoveSkill | Operation::Upload(_) | Operation::Reset => {}
                    operation => {
                        // Refused or overtaken it may be.
                        let happened = operation.on_store(&fixture, "alpha");
                        let broken = matches!(happened, Err(Error::Io { .. } | Error::Unsupported(_)));
                        assert!(!broken, "{operation:?}: {happened:?}");
                    }
                }
            }
        });
        scope.spawn(|| {
            for _ in 0..200 {
                let tree = random_tree(&mut commands, 12);
                let _ = change_skill_by_command(&mut commands, &command.tree(), &tree);
            }
        });
    });
    let mounted = Tree::on_disk(&command.tree()).unwrap();
    let model = Model::from([("alpha", mounted)]);
    assert_same(&our_model(&fixture), &model, "store against mount, after a race");
    drop(command);
    fixture.store.close_views().unwrap();
    assert_unmounted(&fixture, &model);
}

fn live_sequences(unless_told: u64, sequence: fn(u64, Way)) {
    if let Ok(seed) = std::env::var("FILESECBOX_ORACLE_SEED") {
        return WAYS.into_iter().for_each(|way| sequence(seed.parse().unwrap(), way));
    }
    let sequences = std::env::var("FILESECBOX_ORACLE_SEQUENCES");
    let sequences: u64 = sequences.ok().and_then(|text| text.parse().ok()).unwrap_or(unless_told);
    // They wait for mounts to go, most of the time.
    std::thread::scope(|scope| {
        for part in 0..4 {
            let seeds = (0..sequences).filter(move |seed| seed % 4 == part);
            scope.spawn(move || {
                seeds.for_each(|seed| sequence(seed, WAYS[usize::try_from(seed).unwrap() % 3]))
            });
        }
    });
}

#[test]
fn a_live_view_is_what_the_store_and_commands_made_of_it_over_random_operations() {
    live_sequences(60, live_sequence);
}

#[test]
fn requests_and_commands_that_race_in_a_live_view_leave_one_tree() {
    live_sequences(45, live_race);
}
