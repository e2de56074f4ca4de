//! Publishing and installing: whole or not at all, by the users who may, and nothing of the rest of a workspace.

use std::sync::Arc;

use agent::Place;
use agent::catalogue::{SkillStore, system_clock};
use agent::registry::{AUTHOR_ENTRIES_MAX, Kind, PACKAGE_FILES_MAX, Registry, RegistryError, Sharing};
use sandbox::{
    FileKind, MemSandbox, NoneOptions, NoneSandbox, Root, Sandbox, SandboxExt, SandboxPath, UserId,
    WriteOptions,
};

use crate::support::user;
use crate::tapped::{Fault, Tapped};

/// A registry in a directory of the host, and users in memory.
struct World {
    users: MemSandbox,
    tapped: Tapped,
    store: Tapped,
    registry: Registry,
    _directory: tempfile::TempDir,
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(&format!("/workspace/{text}")).unwrap()
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let none = NoneSandbox::open(NoneOptions::new(Root::Shared(directory.path().to_owned()))).unwrap();
        let (users, store) = (MemSandbox::new(), Tapped::new(Arc::new(none)));
        let tapped = Tapped::new(Arc::new(users.clone()));
        let registry = open(&store, &tapped).await;
        Self { users, tapped, store, registry, _directory: directory }
    }

    async fn put(&self, owner: &UserId, relative: &str, text: &str, mode: u32) {
        let path = path(relative);
        self.users.mkdir_all(owner, &path.parent().unwrap(), 0o755).await.unwrap();
        let bytes = bytes::Bytes::from(text.to_owned());
        let body = futures_util::StreamExt::boxed(futures_util::stream::once(async { Ok(bytes) }));
        let options = WriteOptions { permissions: Some(mode), ..WriteOptions::default() };
        self.users.write_file(owner, &path, body, options).await.unwrap();
    }

    async fn skill(&self, owner: &UserId, name: &str) {
        self.put(
            owner,
            &format!("skills/{name}/SKILL.md"),
            &format!("---\nname: {name}\ndescription: 说明 of {name}\n---\nDo it.\n"),
            0o644,
        )
        .await;
        self.put(owner, &format!("skills/{name}/scripts/run.sh"), "#!/bin/sh\necho 你好\n", 0o755).await;
        self.put(owner, &format!("skills/{name}/数据/a b.bin"), "\0\u{7f}", 0o600).await;
    }

    fn link(&self, owner: &UserId, target: &str, at: &str) {
        self.users.with_tree(owner, "symlink", |tree| tree.symlink(target, &path(at))).unwrap();
    }

    /// Every file below `skills` and `agents`, with mode and text.
    async fn installed(&self, owner: &UserId) -> Vec<(String, u32, String)> {
        let mut all = Vec::new();
        for directory in ["skills", "agents"] {
            let Ok((files, _)) = self.users.walk(owner, &path(directory), 1000).await else { continue };
            for (file, entry) in files {
                assert_eq!(entry.kind, FileKind::File, "{file}");
                let relative = format!("{directory}/{file}");
                let mode = self.users.stat(owner, &path(&relative)).await.unwrap().mode;
                let bytes = self.users.read(owner, &path(&relative)).await.unwrap();
                all.push((relative, mode, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        all.sort();
        all
    }

    /// The packages in the registry's directory.
    async fn packages(&self) -> usize {
        let server = user("server");
        let root = self.store.workspace(&server).await.unwrap();
        self.store.read_dir(&server, &root.join("packages").unwrap()).await.unwrap().len()
    }
}

async fn open(store: &Tapped, users: &Tapped) -> Registry {
    let place = Place::in_workspace(Arc::new(store.clone()), user("server"), "").await.unwrap();
    Registry::open(place, Arc::new(users.clone()), system_clock()).await.unwrap()
}

fn whole(name: &str) -> Vec<(String, u32, String)> {
    let file = |path: &str, mode: u32, text: &str| (format!("skills/{name}/{path}"), mode, text.to_owned());
    vec![
        file("SKILL.md", 0o644, &format!("---\nname: {name}\ndescription: 说明 of {name}\n---\nDo it.\n")),
        file("scripts/run.sh", 0o755, "#!/bin/sh\necho 你好\n"),
        file("数据/a b.bin", 0o644, "\0\u{7f}"),
    ]
}

#[tokio::test]
async fn what_is_published_is_installed_byte_for_byte_with_execute_bits_and_links_flattened() {
    let (world, author, reader) = (World::new().await, user("作者"), user("读者"));
    world.skill(&author, "写作").await;
    world.link(&author, "scripts/run.sh", "skills/写作/start");
    world.link(&author, "scripts", "skills/写作/bin");
    let entry =
        world.registry.publish(&author, Kind::Skill, "写作", "文字 text", Sharing::Public).await.unwrap();
    assert_eq!((entry.files, entry.description.as_str()), (5, "说明 of 写作"));
    assert_eq!(world.registry.install(&reader, entry.id).await.unwrap(), entry);
    let mut expected = whole("写作");
    for copy in ["bin/run.sh", "start"] {
        expected.push((format!("skills/写作/{copy}"), 0o755, "#!/bin/sh\necho 你好\n".to_owned()));
    }
    expected.sort();
    assert_eq!(world.installed(&reader).await, expected);
    let again = world.registry.install(&reader, entry.id).await.unwrap_err();
    assert_eq!(again.to_string(), "skill `写作` is already installed: uninstall it first");
    assert_eq!(world.registry.mine(&reader).await.unwrap().installed, ["skill:写作"]);
    world.registry.uninstall(&reader, Kind::Skill, "写作").await.unwrap();
    assert_eq!(world.installed(&reader).await, []);
    let again = world.registry.uninstall(&reader, Kind::Skill, "写作").await.unwrap_err();
    assert_eq!(again.to_string(), "skill `写作` is not installed");
}

#[tokio::test]
async fn a_link_that_leads_out_of_the_skill_publishes_nothing() {
    let (world, author) = (World::new().await, user("author"));
    world.put(&author, "secret.env", "TOKEN=1", 0o600).await;
    world.put(&author, "private/key", "KEY", 0o600).await;
    for (target, at) in [
        ("../../secret.env", "file"),
        ("/workspace/secret.env", "absolute"),
        ("../../private", "directory"),
        ("/etc/passwd", "outside"),
        ("nowhere", "dangling"),
        ("loop", "loop"),
        ("..", "above"),
        (".", "itself"),
    ] {
        let name = format!("leak-{at}");
        world.skill(&author, &name).await;
        world.link(&author, target, &format!("skills/{name}/{at}"));
        let refused =
            world.registry.publish(&author, Kind::Skill, &name, "", Sharing::Public).await.unwrap_err();
        assert!(matches!(&refused, RegistryError::Content(_)), "{at}: {refused}");
    }
    assert_eq!((world.registry.search("").await.len(), world.packages().await), (0, 0));
}

#[tokio::test]
async fn names_never_lead_out_whatever_front_matter_says() {
    let (world, author) = (World::new().await, user("author"));
    world.put(&author, "skills/good/SKILL.md", "---\nname: ../../../evil\n---\n", 0o644).await;
    world.put(&author, "keep/me", "x", 0o644).await;
    for name in ["../keep", "..", ".", "", "a/b", "/etc", ".hidden", "a\0b", "a\nb", " a", &"x".repeat(65)] {
        let publish = world.registry.publish(&author, Kind::Skill, name, "", Sharing::Public).await;
        assert!(matches!(publish, Err(RegistryError::Name(_))), "{name:?}");
        for kind in [Kind::Skill, Kind::Agent] {
            let uninstall = world.registry.uninstall(&author, kind, name).await;
            assert!(matches!(uninstall, Err(RegistryError::Name(_))), "{name:?}");
        }
    }
    let entry = world.registry.publish(&author, Kind::Skill, "good", "", Sharing::Public).await.unwrap();
    assert_eq!(entry.name, "good");
    let reader = user("reader");
    world.registry.install(&reader, entry.id).await.unwrap();
    assert_eq!(world.installed(&reader).await.len(), 1);
    assert!(world.users.exists(&author, &path("keep/me")).await.unwrap());
}

#[tokio::test]
async fn an_author_alone_changes_an_entry_and_private_ones_are_not_seen() {
    let (world, one, two) = (World::new().await, user("one"), user("two"));
    for owner in [&one, &two] {
        world.skill(owner, "same").await;
    }
    let registry = &world.registry;
    let entry = registry.publish(&one, Kind::Skill, "same", "", Sharing::Public).await.unwrap();
    let taken = registry.publish(&two, Kind::Skill, "same", "", Sharing::Private).await;
    assert!(matches!(taken, Err(RegistryError::Taken { .. })), "{taken:?}");
    assert!(matches!(registry.unpublish(&two, entry.id).await, Err(RegistryError::NotAuthor(_))));
    assert!(matches!(registry.remove(&two, entry.id).await, Err(RegistryError::NotAuthor(_))));
    registry.unpublish(&one, entry.id).await.unwrap();
    assert!(registry.search("").await.is_empty());
    assert!(matches!(registry.get(&two, entry.id).await, Err(RegistryError::NoEntry(_))));
    assert!(matches!(registry.install(&two, entry.id).await, Err(RegistryError::NoEntry(_))));
    assert!(matches!(registry.remove(&two, entry.id).await, Err(RegistryError::NoEntry(_))));
    assert_eq!(registry.get(&one, entry.id).await.unwrap().sharing, Sharing::Private);
    let other = registry.publish(&two, Kind::Skill, "same", "", Sharing::Public).await.unwrap();
    assert_ne!(other.id, entry.id);
    let again = registry.publish(&one, Kind::Skill, "same", "", Sharing::Public).await;
    assert!(matches!(again, Err(RegistryError::Taken { .. })));
    registry.remove(&two, other.id).await.unwrap();
    let again = registry.publish(&one, Kind::Skill, "same", "", Sharing::Public).await.unwrap();
    assert_eq!((again.id, world.packages().await), (entry.id, 1));
}

#[tokio::test]
async fn an_installation_that_fails_at_any_step_leaves_nothing_that_anybody_is_told_of() {
    let (world, author, reader) = (World::new().await, user("author"), user("reader"));
    world.skill(&author, "tool").await;
    let entry = world.registry.publish(&author, Kind::Skill, "tool", "", Sharing::Public).await.unwrap();
    let store = SkillStore::new(Vec::new(), Arc::new(world.users.clone()), system_clock());
    let (mut failed, mut step) = (0, 0);
    for fault in [Fault::Fails, Fault::Hangs] {
        step = 0;
        loop {
            world.tapped.fail_at(step, fault);
            let is_done = tokio::select! {
                installed = world.registry.install(&reader, entry.id) => installed.is_ok(),
                () = world.tapped.hangs() => false,
            };
            let was_met = world.tapped.heal();
            agent::catalogue::Forget::forget(&store, &reader);
            let told = store.catalogue(&reader).await.unwrap();
            let files = world.installed(&reader).await;
            if is_done {
                assert!(!was_met);
                assert_eq!(files, whole("tool"));
                world.registry.uninstall(&reader, Kind::Skill, "tool").await.unwrap();
                break;
            }
            // The last step takes the mark away: without it the skill is whole and told of, and replaced all the same.
            assert!(told.is_empty() || files.len() == whole("tool").len() + 1, "step {step}: {files:?}");
            failed += 1;
            step += 1;
            // Leftovers of the failure do not prevent the next installation.
            world.registry.install(&reader, entry.id).await.unwrap();
            assert_eq!(world.installed(&reader).await, whole("tool"));
            world.registry.uninstall(&reader, Kind::Skill, "tool").await.unwrap();
        }
    }
    println!("{failed} failures in {step} steps, twice");
    assert!(failed >= 10);
}

#[tokio::test]
async fn a_removal_that_fails_at_any_step_can_be_repeated_and_is_not_told_of() {
    let (world, author) = (World::new().await, user("author"));
    for step in 0..3 {
        world.skill(&author, "tool").await;
        world.tapped.fail_at(step, Fault::Fails);
        world.registry.uninstall(&author, Kind::Skill, "tool").await.unwrap_err();
        assert!(world.tapped.heal());
        let installed = world.registry.mine(&author).await.unwrap().installed;
        assert_eq!(installed.len(), usize::from(step < 2), "step {step}");
        world.registry.uninstall(&author, Kind::Skill, "tool").await.unwrap();
        assert_eq!(world.installed(&author).await, []);
    }
}

#[tokio::test]
async fn publishing_that_fails_at_any_step_leaves_the_old_state_or_the_new_one() {
    let (author, reader) = (user("author"), user("reader"));
    let (mut old, mut new) = (0, 0);
    for fault in [Fault::Fails, Fault::Hangs] {
        for step in 0.. {
            let world = World::new().await;
            world.skill(&author, "tool").await;
            let before =
                world.registry.publish(&author, Kind::Skill, "tool", "old", Sharing::Public).await.unwrap();
            world.put(&author, "skills/tool/new.txt", "new", 0o644).await;
            world.store.fail_at(step, fault);
            let publishing = world.registry.publish(&author, Kind::Skill, "tool", "new", Sharing::Public);
            // The process dies where it hangs.
            let published = tokio::select! {
                published = publishing => Some(published),
                () = world.store.hangs() => None,
            };
            let was_met = world.store.heal();
            // Another start finds one of both, whole, and no package too many.
            let registry = open(&world.store, &world.tapped).await;
            let found = registry.get(&author, before.id).await.unwrap();
            assert_eq!(world.packages().await, 1, "step {step}");
            registry.install(&reader, before.id).await.unwrap();
            let files = world.installed(&reader).await.len();
            if found.tags == "new" {
                assert_eq!(files, 4);
                new += 1;
            } else {
                assert!(was_met && !matches!(published, Some(Ok(_))));
                assert_eq!((&found, files), (&before, 3));
                old += 1;
            }
            if !was_met {
                break;
            }
        }
    }
    println!("failures left the old state {old} times, the new one {new} times");
    assert!(old >= 10 && new >= 2);
}

#[tokio::test]
async fn agents_are_published_and_installed_as_files() {
    let (world, author, reader) = (World::new().await, user("author"), user("reader"));
    let text = "---\nname: 中书省\ndescription: 规划\ntools: [Read, Shell]\n---\n你是中书省。\n";
    world.put(&author, "agents/中书省.md", text, 0o644).await;
    world.put(&author, "agents/bad.md", "---\nname: 中书 省\n---\n", 0o644).await;
    let bad = world.registry.publish(&author, Kind::Agent, "bad", "", Sharing::Public).await;
    assert!(matches!(bad, Err(RegistryError::Content(_))));
    let entry = world.registry.publish(&author, Kind::Agent, "中书省", "", Sharing::Public).await.unwrap();
    assert_eq!(world.registry.search("规划").await, std::slice::from_ref(&entry));
    world.registry.install(&reader, entry.id).await.unwrap();
    assert_eq!(world.installed(&reader).await, [("agents/中书省.md".to_owned(), 0o644, text.to_owned())]);
    assert!(matches!(world.registry.install(&reader, entry.id).await, Err(RegistryError::Installed { .. })));
    world.registry.uninstall(&reader, Kind::Agent, "中书省").await.unwrap();
    assert_eq!(world.installed(&reader).await, []);
}

#[tokio::test]
async fn a_skill_of_too_many_files_is_refused_and_leaves_nothing() {
    let (world, author) = (World::new().await, user("author"));
    world.skill(&author, "many").await;
    for number in 0..PACKAGE_FILES_MAX {
        world.put(&author, &format!("skills/many/{number}"), "", 0o644).await;
    }
    let refused =
        world.registry.publish(&author, Kind::Skill, "many", "", Sharing::Public).await.unwrap_err();
    assert!(refused.to_string().contains("2000 files"), "{refused}");
    assert_eq!(world.packages().await, 0);
}

#[tokio::test]
async fn an_index_that_is_damaged_is_told_and_not_begun_anew() {
    let (world, author) = (World::new().await, user("author"));
    world.skill(&author, "tool").await;
    world.registry.publish(&author, Kind::Skill, "tool", "", Sharing::Public).await.unwrap();
    let server = user("server");
    let root = world.store.workspace(&server).await.unwrap();
    world.store.write(&server, &root.join("index.json").unwrap(), "{\"entries\": [".into()).await.unwrap();
    let place = Place::in_workspace(Arc::new(world.store.clone()), server, "").await.unwrap();
    let opened = Registry::open(place, Arc::new(world.users.clone()), system_clock()).await;
    assert!(opened.unwrap_err().to_string().contains("damaged"));
    assert_eq!(world.packages().await, 1);
}

#[tokio::test]
async fn one_author_can_neither_fill_the_registry_nor_make_its_index_unreadable() {
    let (world, author, other) = (World::new().await, user("author"), user("other"));
    let text = format!("---\ndescription: {}\n---\n", "说".repeat(20_000));
    for number in 0..=AUTHOR_ENTRIES_MAX {
        world.put(&author, &format!("skills/s{number}/SKILL.md"), &text, 0o644).await;
        let name = format!("s{number}");
        let published = world.registry.publish(&author, Kind::Skill, &name, "", Sharing::Private).await;
        if number == AUTHOR_ENTRIES_MAX {
            assert!(matches!(published, Err(RegistryError::TooMany)));
        } else {
            assert_eq!(published.unwrap().description.chars().count(), 1024);
        }
    }
    world.registry.publish(&author, Kind::Skill, "s0", "again", Sharing::Private).await.unwrap();
    world.skill(&other, "tool").await;
    world.registry.publish(&other, Kind::Skill, "tool", "", Sharing::Public).await.unwrap();
    let server = user("server");
    let root = world.store.workspace(&server).await.unwrap();
    let size = world.store.stat(&server, &root.join("index.json").unwrap()).await.unwrap().size;
    assert!(size < 2 << 20, "{size} bytes");
    assert_eq!(open(&world.store, &world.tapped).await.search("tool").await.len(), 1);
}

#[tokio::test]
async fn a_package_of_which_a_file_is_missing_or_cut_is_not_installed() {
    let (author, reader) = (user("author"), user("reader"));
    for is_cut in [false, true] {
        let world = World::new().await;
        world.skill(&author, "tool").await;
        let entry = world.registry.publish(&author, Kind::Skill, "tool", "", Sharing::Public).await.unwrap();
        let server = user("server");
        let packages = world.store.workspace(&server).await.unwrap().join("packages").unwrap();
        let package = world.store.read_dir(&server, &packages).await.unwrap().remove(0).name;
        let script = packages.join(&format!("{package}/scripts/run.sh")).unwrap();
        if is_cut {
            world.store.write(&server, &script, "#!/bin/sh\n".into()).await.unwrap();
        } else {
            world.store.remove(&server, &script).await.unwrap();
        }
        let refused = world.registry.install(&reader, entry.id).await.unwrap_err();
        assert!(refused.to_string().contains("damaged"), "{refused}");
        assert_eq!(world.installed(&reader).await, []);
    }
}

#[tokio::test]
async fn a_link_in_the_place_of_a_skill_is_not_emptied_by_uninstalling() {
    let (world, author) = (World::new().await, user("author"));
    world.skill(&author, "real").await;
    world.link(&author, "real", "skills/alias");
    let refused = world.registry.uninstall(&author, Kind::Skill, "alias").await;
    assert!(matches!(refused, Err(RegistryError::NotInstalled { .. })));
    let text = world.users.read(&author, &path("skills/real/SKILL.md")).await.unwrap();
    assert_eq!(text, whole("real")[0].2);
}
