//! Laws of what stands where: the publisher and the time follow from the disk alone, after every later change.

use crate::fixture::{self, Fixture, Tree, agent, path, publisher, put, skill_id, skill_tree, user_id};
use policy::Scope;
use storage::{Prefer, Shelf, Standing, Store};

const MINE: [(&str, &str); 2] =
    [("SKILL.md", "---\nname: 数据统计\ndescription: counts\n---\n"), ("d/f", "12345")];

fn shelf(user: Option<&str>) -> Shelf {
    Shelf { agent: agent(), skill: skill_id("s"), user: user.map(user_id) }
}

fn standing(fixture: &Fixture, user: Option<&str>) -> Option<Standing> {
    fixture.store.skills().standing(&shelf(user)).unwrap()
}

fn by(standing: &Option<Standing>) -> Option<&str> {
    standing.as_ref()?.by.as_deref()
}

/// Everything that stands, with where.
fn all(store: &Store) -> Vec<(Shelf, Standing)> {
    let mut all = Vec::new();
    let mut visit = |shelf: Shelf| {
        all.extend(store.skills().standing(&shelf)?.map(|standing| (shelf, standing)));
        Ok::<_, storage::Error>(())
    };
    store.skills().each_shelf(&mut visit).unwrap();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

#[test]
fn what_was_published_stands_with_its_contents_and_who_published_it() {
    let fixture = Fixture::new();
    assert_eq!(all(&fixture.store), []);
    let published = fixture.publish(Scope::Overlay, "u", "s", &Tree::of(&MINE));
    let baseline = fixture.publish(Scope::Baseline, "m", "s", &Tree::of(&[("f", "1")]));
    let own = standing(&fixture, Some("u")).unwrap();
    assert_eq!((own.name.as_str(), own.description.as_str()), ("数据统计", "counts"));
    assert_eq!(own.contents.version, published.version);
    assert!(own.contents.digest.starts_with(published.version.as_str()) && own.contents.digest.len() == 64);
    let bytes = MINE.iter().map(|(_, text)| text.len() as u64).sum::<u64>();
    assert_eq!((own.contents.files, own.contents.bytes), (2, bytes));
    assert_eq!(own.by, Some("u".to_owned()));
    let of_all = standing(&fixture, None).unwrap();
    assert_eq!(
        (of_all.contents.version.clone(), of_all.by.clone()),
        (baseline.version, Some("m".to_owned()))
    );
    let expected = [(shelf(None), of_all), (shelf(Some("u")), own)];
    assert_eq!(all(&fixture.store), expected);
    // Also for the next service that opens the store.
    let temp = fixture.temp;
    drop(fixture.store);
    let (store, _) = Store::open(temp.path(), fixture::relaxed()).unwrap();
    assert_eq!(all(&store), expected);
}

#[test]
fn changes_of_what_was_published_do_not_change_what_was_published() {
    let fixture = Fixture::new();
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    fixture.publish(Scope::Overlay, "u", "s", &Tree::of(&MINE));
    let before = all(&fixture.store);
    let skill = fixture.skill("u", "s");
    put(&skill, "SKILL.md", "# another name");
    skill.remove(&path("d"), true, &storage::Condition::Always).unwrap();
    fixture.baseline("s", &Tree::of(&[("f", "1")]));
    assert_eq!(all(&fixture.store), before);
    // A newer baseline below it moves the base of the overlay, which stays what it is.
    fixture.baseline("s", &Tree::of(&[("f", "2")]));
    assert!(fixture.store.skills().pull(&skill_tree("u", "s"), Prefer::Ours).unwrap().moved);
    assert_eq!(standing(&fixture, Some("u")), Some(before[1].1.clone()));
}

#[test]
fn what_is_gone_or_was_never_published_does_not_stand() {
    let fixture = Fixture::new();
    let first = fixture.baseline("s", &Tree::of(&[("f", "1")])).version;
    // A copy-up is nothing that was published.
    put(&fixture.skill("u", "s"), "f", "mine");
    assert_eq!(standing(&fixture, Some("u")), None);
    for gone in ["reset", "hidden", "hidden and made anew"] {
        fixture.publish(Scope::Overlay, "u", "s", &Tree::of(&MINE));
        assert_eq!(by(&standing(&fixture, Some("u"))), Some("u"));
        if gone == "reset" {
            fixture.store.skills().reset(&skill_tree("u", "s")).unwrap();
        } else {
            fixture.store.skills().remove_for_user(&skill_tree("u", "s")).unwrap();
        }
        if gone == "hidden and made anew" {
            put(&fixture.skill("u", "s"), "f", "mine");
        }
        assert_eq!(standing(&fixture, Some("u")), None, "{gone}");
        fixture.store.skills().reset(&skill_tree("u", "s")).unwrap();
    }
    // Going back and promoting are publications of the users who did it.
    fixture.publish(Scope::Baseline, "m", "s", &Tree::of(&[("f", "2")]));
    fixture
        .store
        .skills()
        .rollback(&publisher("r"), &user_id("r"), &agent(), &skill_id("s"), &(&first).into())
        .unwrap();
    assert_eq!(by(&standing(&fixture, None)), Some("r"));
    put(&fixture.skill("p", "s"), "f", "3");
    fixture.store.skills().promote(&publisher("p"), &skill_tree("p", "s"), false).unwrap();
    assert_eq!((by(&standing(&fixture, None)), standing(&fixture, Some("p"))), (Some("p"), None));
    fixture.store.skills().remove_baseline(&agent(), &skill_id("s")).unwrap();
    assert_eq!(all(&fixture.store), []);
}

#[test]
fn a_baseline_skill_that_was_put_there_by_hand_stands_without_anybodys_name() {
    let fixture = Fixture::new();
    let by_hand = fixture.root().join("skill/baseline/agent/s");
    std::fs::create_dir_all(&by_hand).unwrap();
    std::fs::write(by_hand.join("README.md"), "# By hand\n\nIt was copied.\n").unwrap();
    let found = standing(&fixture, None).unwrap();
    assert_eq!((found.name.as_str(), found.description.as_str()), ("By hand", "It was copied."));
    assert_eq!((found.by.clone(), found.contents.files, found.contents.bytes), (None, 1, 26));
    assert_eq!(standing(&fixture, None), Some(found));
}
