//! Laws of publishing: all or nothing, and what becomes of former versions and of overlays.

use crate::fixture::{
    self, Fixture, Tree, agent, path, put, read, relaxed, skill_id, skill_tree, user_id, write,
};
use policy::{RelPath, Scope, SkillId};
use storage::{Condition, Dir, Error, Options, Presence, PublishOptions, Published, WriteOptions};

fn former_versions(fixture: &Fixture, skill: &str) -> Vec<String> {
    fixture.own(&format!("versions/agent/{skill}"))
}

fn keeping(keep_versions: usize) -> Fixture {
    Fixture::with(Options { keep_versions, ..relaxed() })
}

#[test]
fn when_one_of_three_skills_fails_none_is_published() {
    for scope in [Scope::Baseline, Scope::Overlay] {
        let fixture = Fixture::new();
        fixture.baseline("a", &Tree::of(&[("f", "old")]));
        let before = (Tree::on_disk(&fixture.root().join("skill")), fixture.own("bases"));
        let fill = &mut |skill: &SkillId, dir: &Dir| {
            Tree::of(&[("f", "new"), ("d/g", "new")]).fill(dir);
            if skill.as_str() == "b" { Err(Error::NotText("g".into())) } else { Ok(None) }
        };
        let skills = ["a", "b", "c"].map(skill_id);
        let published = fixture
            .store
            .skills()
            .publish(scope, &user_id("u"), &agent(), &skills, fill)
            .map(|done| done.skills);
        assert!(matches!(published, Err(Error::NotText(_))), "{published:?}");
        assert_eq!((Tree::on_disk(&fixture.root().join("skill")), fixture.own("bases")), before);
        fixture.assert_swept();
    }
}

#[test]
fn three_skills_are_published_together() {
    let fixture = Fixture::new();
    let skills = ["a", "b", "数据"].map(skill_id);
    let fill = &mut |skill: &SkillId, dir: &Dir| {
        Tree::of(&[("name", skill.as_str())]).fill(dir);
        Ok(None)
    };
    for scope in [Scope::Baseline, Scope::Overlay] {
        let published =
            fixture.store.skills().publish(scope, &user_id("u"), &agent(), &skills, fill).unwrap().skills;
        assert!(published.iter().all(|published| !published.replaced && !published.unchanged));
        for skill in &skills {
            assert_eq!(read(&fixture.skill("u", skill.as_str()), "name").unwrap(), skill.as_str());
        }
    }
    fixture.assert_swept();
}

#[test]
fn the_same_content_again_is_unchanged_and_keeps_no_version() {
    let fixture = Fixture::new();
    let tree = Tree::of(&[("f", "1"), ("d/g", "2")]);
    let first = fixture.baseline("s", &tree);
    let again = fixture.baseline("s", &tree);
    let expected = Published { replaced: true, unchanged: true, ..first.clone() };
    assert_eq!((again, first.unchanged), (expected, false));
    assert_eq!(former_versions(&fixture, "s"), Vec::<String>::new());
    let mut executable = tree.clone();
    executable.file("f", "1", 0o755);
    let changed = fixture.baseline("s", &executable);
    assert!(changed.replaced && !changed.unchanged && changed.version != first.version);
    assert_eq!(former_versions(&fixture, "s"), [first.version.as_str()]);
    fixture.assert_swept();
}

#[test]
fn a_former_version_stays_as_long_as_an_overlay_began_with_it() {
    let fixture = keeping(0);
    let version = |text: &str| fixture.baseline("s", &Tree::of(&[("f", text), ("g", "same")])).version;
    let first = version("1");
    put(&fixture.skill("u", "s"), "g", "mine");
    let second = version("2");
    assert_eq!(former_versions(&fixture, "s"), [first.as_str()]);
    put(&fixture.skill("v", "s"), "g", "mine");
    version("3");
    let mut both = vec![first.as_str(), second.as_str()];
    both.sort_unstable();
    assert_eq!(former_versions(&fixture, "s"), both);
    fixture.store.skills().reset(&skill_tree("u", "s")).unwrap();
    version("4");
    assert_eq!(former_versions(&fixture, "s"), [second.as_str()]);
    assert_eq!(read(&fixture.skill("v", "s"), "f").unwrap(), "4");
}

#[test]
fn of_the_former_versions_that_nobody_began_with_the_newest_stay() {
    let fixture = keeping(2);
    let versions: Vec<String> = ["1", "2", "3", "4"]
        .map(|text| fixture.baseline("s", &Tree::of(&[("f", text)])).version.to_string())
        .into();
    let mut expected = versions.get(1..3).unwrap().to_vec();
    expected.sort_unstable();
    assert_eq!(former_versions(&fixture, "s"), expected);
    // An old version comes back: the kept copy and the current one do not get in each other's way.
    for text in ["3", "4", "3", "2"] {
        fixture.baseline("s", &Tree::of(&[("f", text)]));
        assert_eq!(read(&fixture.skill("u", "s"), "f").unwrap(), text);
    }
    fixture.assert_swept();
}

#[test]
fn a_file_that_is_open_outlives_its_version() {
    use std::io::Read;
    let fixture = keeping(0);
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    let mut opened = fixture.skill("u", "s").open(&path("f")).unwrap();
    fixture.baseline("s", &Tree::of(&[("f", "2")]));
    let mut text = String::new();
    opened.file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "1");
}

#[test]
fn an_uploaded_skill_hides_the_baseline_skill_for_its_user_alone() {
    let fixture = Fixture::new();
    let baseline = Tree::of(&[("base", "1"), ("d/base", "1")]);
    fixture.baseline("s", &baseline);
    let own = Tree::of(&[("own", "1"), ("d/own", "1")]);
    let first = fixture.publish(Scope::Overlay, "u", "s", &own);
    let second = fixture.publish(Scope::Overlay, "u", "s", &own);
    assert!(!first.replaced && second.replaced && first.version == second.version);
    assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(own));
    assert_eq!(Tree::through(&fixture.skill("v", "s")), Some(baseline.clone()));
    assert!(fixture.store.skills().reset(&skill_tree("u", "s")).unwrap());
    assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(baseline));
    fixture.assert_swept();
}

#[test]
fn a_removed_skill_is_gone_for_its_user_alone_and_comes_back_with_a_reset() {
    let fixture = Fixture::new();
    let (user, tree) = (fixture.skill("u", "s"), skill_tree("u", "s"));
    assert!(matches!(fixture.store.skills().remove_for_user(&tree), Err(Error::NotFound(_))));
    assert!(matches!(fixture.store.skills().reset(&tree), Err(Error::NotFound(_))));
    let baseline = Tree::of(&[("f", "1"), ("d/g", "1")]);
    fixture.baseline("s", &baseline);
    assert!(!fixture.store.skills().reset(&tree).unwrap());
    put(&user, "f", "mine");
    fixture.store.skills().remove_for_user(&tree).unwrap();
    assert!(matches!(fixture.store.skills().remove_for_user(&tree), Err(Error::NotFound(_))));
    assert_eq!(Tree::through(&user), None);
    assert!(matches!(fixture.store.runs().prepare(&tree), Err(Error::NotFound(_))));
    assert_eq!(Tree::through(&fixture.skill("v", "s")), Some(baseline.clone()));
    // A refused write does not bring it back, a new file begins it anew.
    let refused = write(&user, "d/g", b"1", &WriteOptions::default());
    assert!(matches!(refused, Err(Error::NotFound(_))), "{refused:?}");
    assert_eq!(Tree::through(&user), None);
    put(&user, "new", "1");
    assert_eq!(Tree::through(&user), Some(Tree::of(&[("new", "1")])));
    assert!(fixture.store.skills().reset(&tree).unwrap());
    assert!(!fixture.store.skills().reset(&tree).unwrap());
    assert_eq!(Tree::through(&user), Some(baseline));
    fixture.assert_swept();
}

#[test]
fn a_skill_of_the_user_alone_goes_without_a_trace() {
    let fixture = Fixture::new();
    put(&fixture.skill("u", "s"), "f", "1");
    fixture.store.skills().remove_for_user(&skill_tree("u", "s")).unwrap();
    assert_eq!(fixture::names(&fixture.overlay_path("u")), Vec::<String>::new());
    assert_eq!(fixture.own("bases/agent/s"), Vec::<String>::new());
    put(&fixture.skill("u", "s"), "f", "1");
    assert!(fixture.store.skills().reset(&skill_tree("u", "s")).unwrap());
    assert_eq!(Tree::through(&fixture.skill("u", "s")), None);
}

#[test]
fn a_removed_baseline_leaves_users_what_is_theirs() {
    let fixture = keeping(0);
    let (agent, skill) = (agent(), skill_id("s"));
    assert!(matches!(fixture.store.skills().remove_baseline(&agent, &skill), Err(Error::NotFound(_))));
    let version = fixture.baseline("s", &Tree::of(&[("f", "1"), ("g", "1")])).version;
    put(&fixture.skill("u", "s"), "f", "mine");
    fixture.store.skills().remove_for_user(&skill_tree("w", "s")).unwrap();
    fixture.store.skills().remove_baseline(&agent, &skill).unwrap();
    assert_eq!(Tree::through(&fixture.skill("u", "s")), Some(Tree::of(&[("f", "mine")])));
    assert_eq!(Tree::through(&fixture.skill("v", "s")), None);
    assert_eq!(former_versions(&fixture, "s"), [version.as_str()]);
    // Who had removed it still has not got it when it returns.
    assert_eq!(fixture.baseline("s", &Tree::of(&[("f", "1"), ("g", "1")])).version, version);
    assert_eq!(Tree::through(&fixture.skill("w", "s")), None);
    assert_eq!(read(&fixture.skill("u", "s"), "g").unwrap(), "1");
    // The same content lies in the versions already: the second removal meets it there.
    fixture.store.skills().remove_baseline(&agent, &skill).unwrap();
    assert_eq!(former_versions(&fixture, "s"), [version.as_str()]);
    fixture.assert_swept();
}

#[test]
fn an_unpublished_upload_of_a_user_changes_no_other_skill() {
    let fixture = Fixture::new();
    fixture.baseline("a", &Tree::of(&[("f", "1")]));
    fixture.publish(Scope::Overlay, "u", "b", &Tree::of(&[("f", "1")]));
    let files = fixture.skill("u", "a");
    files.remove(&path("f"), false, &Condition::Always).unwrap();
    fixture.publish(Scope::Overlay, "u", "b", &Tree::of(&[("f", "2")]));
    assert_eq!(files.list(&RelPath::root()).unwrap(), []);
}

#[test]
fn readers_beside_a_publisher_always_see_one_whole_version() {
    let fixture = keeping(0);
    let version = |text: &str| Tree::of(&[("a", text), ("d/b", text)]);
    fixture.baseline("s", &version("0"));
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            for number in 1..100 {
                fixture.baseline("s", &version(&number.to_string()));
            }
        });
        let tree = skill_tree("u", "s");
        let mut rounds = 0;
        while !publisher.is_finished() {
            rounds += 1;
            let run = fixture.store.runs().prepare(&tree).unwrap();
            let seen = Tree::on_disk(&run.view().tree).unwrap();
            let Some(fixture::Node::File { bytes, .. }) = seen.nodes.get("a") else { panic!("{seen:?}") };
            assert_eq!(seen, version(std::str::from_utf8(bytes).unwrap()));
        }
        assert!(rounds > 3, "{rounds} looks at what was published");
    });
    fixture.assert_swept();
}

#[test]
fn of_two_who_make_a_skill_of_one_content_one_is_refused() {
    let fixture = Fixture::new();
    let (user, agent) = (user_id("u"), agent());
    let barrier = std::sync::Barrier::new(2);
    for round in 0..1000 {
        let skills = [skill_id(&format!("s-{round}"))];
        let make = || {
            let fill = &mut |_: &SkillId, dir: &Dir| {
                Tree::of(&[("f", "same")]).fill(dir);
                Ok(None)
            };
            let options = PublishOptions { presence: Presence::Absent, ..fixture::publisher("u") };
            barrier.wait();
            fixture
                .store
                .skills()
                .publish_with(&options, Scope::Baseline, &user, &agent, &skills, fill)
                .map(|done| done.skills)
        };
        let made = std::thread::scope(|scope| {
            let other = scope.spawn(make);
            [make(), other.join().unwrap()]
        });
        let refused = made.iter().filter(|made| matches!(made, Err(Error::AlreadyExists(_)))).count();
        assert_eq!(refused, 1, "round {round}: {made:?}");
    }
}
