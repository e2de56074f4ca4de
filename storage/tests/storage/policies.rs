//! Laws of what is kept for agents: the text that was kept last is read back, and nothing that the service did not write.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use crate::fixture::{Fixture, relaxed};
use policy::AgentId;
use storage::{Error, Store};

fn agent(id: &str) -> AgentId {
    AgentId::parse(id).unwrap()
}

fn records(fixture: &Fixture) -> Vec<PathBuf> {
    let dir = fixture.root().join(".filesecbox/policies");
    let mut records: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    records.sort();
    records
}

/// What the next service reads.
fn next(fixture: Fixture) -> (HashMap<AgentId, String>, usize, Fixture) {
    let Fixture { store, temp } = fixture;
    drop(store);
    let (store, _) = Store::open(temp.path(), relaxed()).unwrap();
    let read = store.agent_policies().unwrap();
    (read.texts, read.refused, Fixture { store, temp })
}

#[test]
fn what_was_kept_last_is_read_back_for_every_id_there_can_be() {
    let fixture = Fixture::new();
    let ids = ["a", "a.draft", "名", &"x".repeat(128)].map(agent);
    for (number, id) in ids.iter().enumerate() {
        for text in ["first", "second\nline", &format!("last {number}")] {
            fixture.store.keep_agent_policy(id, Some(text)).unwrap();
        }
    }
    assert_eq!(records(&fixture).len(), ids.len());
    fixture.store.keep_agent_policy(&ids[0], None).unwrap();
    fixture.store.keep_agent_policy(&ids[0], None).unwrap();
    let (texts, refused, _) = next(fixture);
    let expected = ids.iter().enumerate().skip(1).map(|(number, id)| (id.clone(), format!("last {number}")));
    assert_eq!((texts, refused), (expected.collect(), 0));
}

#[test]
fn of_two_records_that_a_crash_left_the_newer_counts_and_the_older_goes() {
    let fixture = Fixture::new();
    fixture.store.keep_agent_policy(&agent("a"), Some("older")).unwrap();
    let [older] = <[PathBuf; 1]>::try_from(records(&fixture)).unwrap();
    let aside = fixture.root().join("aside");
    fs::hard_link(&older, &aside).unwrap();
    fixture.store.keep_agent_policy(&agent("a"), Some("newer")).unwrap();
    fs::rename(&aside, &older).unwrap();
    assert_eq!(records(&fixture).len(), 2);
    let (texts, refused, fixture) = next(fixture);
    assert_eq!((texts, refused), (HashMap::from([(agent("a"), "newer".to_owned())]), 0));
    assert_eq!(records(&fixture).len(), 1);
}

#[test]
fn a_record_of_another_agent_or_of_a_change_is_none_and_nothing_else_is_read() {
    let fixture = Fixture::new();
    fixture.store.keep_agent_policy(&agent("a"), Some("wide")).unwrap();
    let [own] = <[PathBuf; 1]>::try_from(records(&fixture)).unwrap();
    fixture.store.keep_agent_policy(&agent("victim"), Some("narrow")).unwrap();
    let victim = records(&fixture).into_iter().find(|record| *record != own).unwrap();
    // Another's genuine record under the victim's name, with its attribute; a directory; a pipe; a draft.
    fs::remove_file(&victim).unwrap();
    fs::rename(&own, &victim).unwrap();
    let dir = victim.parent().unwrap();
    fs::create_dir(dir.join("directory")).unwrap();
    fs::write(dir.join("x.draft"), "torn").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("pipe"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let (texts, refused, fixture) = next(fixture);
    assert_eq!((texts, refused), (HashMap::new(), 3));
    assert_eq!(records(&fixture), Vec::<PathBuf>::new());
    assert_eq!(fixture.own("refused").len(), 3);
}

#[test]
fn no_text_is_longer_and_there_are_no_more_than_there_may_be() {
    let fixture = Fixture::new();
    let long = "x".repeat((1 << 20) + 1);
    let refused = fixture.store.keep_agent_policy(&agent("a"), Some(&long));
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    for number in 0..1000 {
        fixture.store.keep_agent_policy(&agent(&format!("a{number}")), Some("{}")).unwrap();
    }
    let refused = fixture.store.keep_agent_policy(&agent("one-more"), Some("{}"));
    assert!(matches!(refused, Err(Error::TooManyEntries(1000))), "{refused:?}");
    fixture.store.keep_agent_policy(&agent("a7"), Some("{\"changed\":1}")).unwrap();
    fixture.store.keep_agent_policy(&agent("a8"), None).unwrap();
    fixture.store.keep_agent_policy(&agent("one-more"), Some("{}")).unwrap();
}
