//! The laws of every [`Registry`], to be run by the tests of each implementation.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a broken law is a panic")]

use policy::{AgentId, SkillId, UserId};
use storage::{Contents, Shelf, Standing, Version};

use super::{Change, Error, Owners, Question, Registry, Row};

/// Holds an implementation to all laws; `make` gives an empty registry each time.
///
/// # Panics
/// When a law is broken.
pub fn check(make: &mut dyn FnMut() -> Box<dyn Registry>) {
    rows_come_back_as_they_were_put_and_in_order(make().as_mut());
    a_question_is_answered_with_exactly_what_it_asks_for(make().as_mut());
    pages_together_are_the_list_whatever_goes_in_between(make().as_mut());
    a_shelf_has_one_row_at_most(make().as_mut());
    replacing_replaces_everything_or_nothing(make().as_mut());
}

/// Rows of several agents, skills and users in the order of the registry; names meet what sorts and quotes badly.
fn rows() -> Vec<Row> {
    let shelves = [
        ("a", "s", None),
        ("a", "s", Some("U")),
        ("a", "s", Some("u")),
        ("a", "s'; DROP TABLE x; --", None),
        ("a", "t", Some("甲")),
        ("a%", "s", None),
        ("数据", "s", Some("u")),
        ("数据", "统计", None),
        ("数据", "统计", Some("甲")),
    ];
    shelves.iter().enumerate().map(|(number, shelf)| row(*shelf, number)).collect()
}

fn row((agent, skill, user): (&str, &str, Option<&str>), number: usize) -> Row {
    let shelf = Shelf {
        agent: AgentId::parse(agent).expect("an id"),
        skill: SkillId::parse(skill).expect("an id"),
        user: user.map(|user| UserId::parse(user).expect("an id")),
    };
    let digest = format!("{number:064x}");
    let version = Version::parse(&digest[32..]).expect("digits");
    let contents = Contents { version, digest, files: number, bytes: u64::MAX >> 1 };
    let standing = Standing {
        contents,
        name: format!("name\n{number} \"'%_"),
        description: "说明 \u{1F600}".repeat(number),
        by: number.is_multiple_of(2).then(|| "甲".to_owned()),
        at_ms: i64::MIN + i64::try_from(number).expect("small"),
    };
    Row::new(shelf, standing)
}

fn put(registry: &mut dyn Registry, rows: &[Row]) {
    // Backwards: the order is the registry's, not the caller's.
    let changes: Vec<Change> = rows.iter().rev().cloned().map(Change::Put).collect();
    registry.apply(&changes).expect("rows can be put");
}

fn list(registry: &mut dyn Registry, question: &Question) -> Vec<Row> {
    registry.list(question).expect("rows can be listed")
}

fn rows_come_back_as_they_were_put_and_in_order(registry: &mut dyn Registry) {
    assert_eq!(list(registry, &Question::all(100)), [], "a new registry is empty");
    put(registry, &rows());
    assert_eq!(list(registry, &Question::all(100)), rows());
    assert_eq!(list(registry, &Question::all(0)), []);
}

fn a_question_is_answered_with_exactly_what_it_asks_for(registry: &mut dyn Registry) {
    put(registry, &rows());
    let user = |name| UserId::parse(name).expect("an id");
    let owners = [
        Owners::All,
        Owners::Baseline,
        Owners::Overlays,
        Owners::User(user("u")),
        Owners::User(user("nobody")),
        Owners::UserAndBaseline(user("甲")),
    ];
    let agents = [None, Some("a"), Some("数据"), Some("none")];
    let skills = [None, Some("s"), Some("统计"), Some("%")];
    let ids = [None, Some(rows()[1].id.clone()), Some("0".repeat(32))];
    let afters = rows().into_iter().map(|row| Some(row.shelf)).chain([None]);
    for after in afters {
        for owners in &owners {
            for (agent, skill) in
                agents.iter().flat_map(|agent| skills.iter().map(move |skill| (agent, skill)))
            {
                for (id, limit) in ids.iter().flat_map(|id| [(id, 1), (id, 100)]) {
                    let question = Question {
                        id: id.clone(),
                        agent: agent.map(|agent| AgentId::parse(agent).expect("an id")),
                        skill: skill.map(|skill| SkillId::parse(skill).expect("an id")),
                        owners: owners.clone(),
                        after: after.clone(),
                        limit,
                    };
                    let expected = rows().into_iter().filter(|row| question.admits(&row.shelf));
                    let expected: Vec<Row> = expected.take(limit).collect();
                    assert_eq!(list(registry, &question), expected, "{question:?}");
                }
            }
        }
    }
}

fn pages_together_are_the_list_whatever_goes_in_between(registry: &mut dyn Registry) {
    put(registry, &rows());
    let mut found: Vec<Row> = Vec::new();
    loop {
        let after = found.last().map(|row| row.shelf.clone());
        let page = list(registry, &Question { after: after.clone(), ..Question::all(2) });
        let Some(last) = page.last() else { break };
        // The row that a page begins behind need not be there any more.
        registry.apply(&[Change::Remove(last.shelf.clone())]).expect("rows can be removed");
        found.extend(page);
    }
    assert_eq!(found, rows());
}

fn a_shelf_has_one_row_at_most(registry: &mut dyn Registry) {
    let [first, second] = [0, 1].map(|number| row(("a", "s", None), number));
    let other = row(("a", "s", Some("u")), 2);
    put(registry, &[first.clone(), other.clone()]);
    put(registry, std::slice::from_ref(&second));
    assert_eq!(list(registry, &Question::all(100)), [second.clone(), other.clone()]);
    // The changes of one call count in their order, and what is not there can be removed.
    let changes = [
        Change::Put(first),
        Change::Remove(second.shelf.clone()),
        Change::Remove(second.shelf),
        Change::Remove(row(("none", "s", None), 3).shelf),
    ];
    registry.apply(&changes).expect("rows can be removed");
    assert_eq!(list(registry, &Question::all(100)), [other]);
    registry.apply(&[]).expect("nothing can be done");
}

fn replacing_replaces_everything_or_nothing(registry: &mut dyn Registry) {
    let rows = rows();
    let (old, new) = (&rows[..5], &rows[3..]);
    put(registry, old);
    let failed = registry.replace(&mut |take| {
        rows.iter().rev().take(3).try_for_each(|row| take(row.clone()))?;
        Err(Error::Broken("on purpose".to_owned()))
    });
    assert!(matches!(failed, Err(Error::Broken(_))), "{failed:?}");
    assert_eq!(list(registry, &Question::all(100)), old);
    let replaced = registry.replace(&mut |take| new.iter().rev().try_for_each(|row| take(row.clone())));
    assert_eq!(replaced.expect("rows can be replaced"), new.len());
    assert_eq!(list(registry, &Question::all(100)), new);
    assert_eq!(registry.replace(&mut |_| Ok(())).expect("all rows can go"), 0);
    assert_eq!(list(registry, &Question::all(100)), []);
}
