//! Laws of the copies that stay for the next run: who keeps some, and when they go.

use std::fs;
use std::path::PathBuf;

use crate::fixture::{Fixture, relaxed, write};
use policy::{AgentId, DiskLimits, SkillId, TreeId, UserId};
use storage::{Error, Options, WriteOptions};

fn skill(user: &str, agent: &str, skill: &str) -> TreeId {
    let (user, agent) = (UserId::parse(user).unwrap(), AgentId::parse(agent).unwrap());
    TreeId::Skill(user, agent, SkillId::parse(skill).unwrap())
}

/// Runs nothing in a skill, and tells where its copy is.
fn run(fixture: &Fixture, id: &TreeId) -> PathBuf {
    let run = fixture.store.runs().prepare(id).unwrap();
    let place = run.view().tree.clone();
    run.absorb().unwrap();
    place
}

#[test]
fn a_user_who_makes_many_copies_with_many_agents_takes_none_from_a_user_with_few() {
    let fixture = Fixture::new();
    let publish = |agent: &str, skill: &str| {
        let place = fixture.root().join("skill/baseline").join(agent).join(skill);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("SKILL.md"), "1").unwrap();
    };
    for number in 0..10 {
        for agent in 0..10 {
            publish(&format!("agent{agent}"), &format!("s{number}"));
        }
    }
    let few: Vec<PathBuf> =
        (0..3).map(|number| run(&fixture, &skill("few", "agent0", &format!("s{number}")))).collect();
    for number in 0..10 {
        for agent in 0..10 {
            run(&fixture, &skill("many", &format!("agent{agent}"), &format!("s{number}")));
        }
    }
    assert_eq!(fixture.own("work").len(), 64);
    assert!(few.iter().all(|place| place.join("SKILL.md").exists()), "{few:?}");
}

#[test]
fn copies_that_no_run_is_in_go_before_anything_is_refused_for_a_full_disk() {
    let disk = DiskLimits { free_bytes: u64::MAX, ..DiskLimits::default() };
    let fixture = Fixture::with(Options { disk, ..relaxed() });
    // Copying what has no content asks for no room.
    for name in ["s", "t"] {
        fs::create_dir_all(fixture.root().join("skill/baseline/agent").join(name).join("d")).unwrap();
    }
    let (idle, used) = (skill("u", "agent", "s"), skill("v", "agent", "t"));
    let place = run(&fixture, &idle);
    let under_way = fixture.store.runs().prepare(&used).unwrap();
    assert!(place.join("d").exists(), "the control: it stays as long as nothing needs its room");
    let refused = write(&fixture.skill("u", "s"), "f", b"1", &WriteOptions::default());
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert!(!place.exists());
    assert!(under_way.view().tree.join("d").exists());
}
