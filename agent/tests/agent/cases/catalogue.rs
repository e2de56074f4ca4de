//! Areas `skills.*`, `agents.*` and `registry`.

use std::sync::Arc;

use agent::Place;
use agent::catalogue::{Agent, SkillStore, system_clock};
use agent::registry::{Kind, Registry, Sharing};
use sandbox::MemSandbox;
use serde_json::{Value, json};

use super::{Case, fits, run, same};
use crate::support::{Bench, user};

#[tokio::test]
async fn every_recorded_skill_agent_and_entry_is_as_expected() {
    let count = run(include_str!("../../cases/catalogue.jsonl"), &[], check).await;
    assert_eq!(count, 12);
}

async fn check(case: Case) -> Result<(), String> {
    match case.area.as_str() {
        "skills.catalog" => skills(&case).await,
        "agents.front_matter" => {
            agent(&format!("---\n{}\n---\n", case.input.as_str().unwrap()), &case.expected)
        }
        "agents.file" => agent(case.text("text"), &case.expected),
        "registry" => registry(&case).await,
        other => Err(format!("no test for area {other}")),
    }
}

async fn skills(case: &Case) -> Result<(), String> {
    let (bench, shared) = (Bench::memory().await, Bench::memory().await);
    for (key, bench) in [("global", &shared), ("private", &bench)] {
        for skill in case.input.get(key).and_then(Value::as_array).into_iter().flatten() {
            let (name, description) = (skill[0].as_str().unwrap(), skill[1].as_str().unwrap());
            let text = format!("---\nname: {name}\ndescription: {description}\n---\n");
            bench.put(&format!("skills/{name}/SKILL.md"), text).await;
        }
    }
    let place = Place::new(Arc::clone(&shared.sandbox), shared.session.user().clone(), shared.path("skills"));
    let store = SkillStore::new(vec![place], Arc::clone(&bench.sandbox), system_clock());
    let text = store.catalogue(bench.session.user()).await.unwrap();
    for (word, count) in case.expected.get("count").and_then(Value::as_object).into_iter().flatten() {
        same(text.matches(word).count() as u64, count.as_u64().unwrap())?;
    }
    fits(&text, &case.expected)
}

fn agent(text: &str, expected: &Value) -> Result<(), String> {
    let agent = Agent::parse("stem", text);
    if expected.get("error").is_some() {
        return same(agent.is_err(), true);
    }
    let agent = agent?;
    let found = json!({
        "name": agent.name,
        "description": agent.description,
        "tools": agent.tools,
        "memory": agent.memory,
        "send_message": agent.send_message,
        "spawn_agent": agent.spawn_agent,
        "system_prompt": agent.system_prompt,
    });
    expected.as_object().unwrap().iter().try_for_each(|(key, value)| same((key, &found[key]), (key, value)))
}

async fn registry(case: &Case) -> Result<(), String> {
    let bench = Bench::memory().await;
    let place = Place::in_workspace(Arc::new(MemSandbox::new()), user("server"), "registry").await.unwrap();
    let registry = Registry::open(place, Arc::clone(&bench.sandbox), system_clock()).await.unwrap();
    let author = user("user1");
    for name in ["test-skill", "other-skill"] {
        let path = bench.path(&format!("skills/{name}"));
        bench.sandbox.mkdir_all(&author, &path, 0o755).await.unwrap();
        let file = path.join("SKILL.md").unwrap();
        sandbox::SandboxExt::write(&*bench.sandbox, &author, &file, "---\nname: x\n---\n".into())
            .await
            .unwrap();
    }
    let publish = async |name: &str, tags: &str| {
        registry.publish(&author, Kind::Skill, name, tags, Sharing::Public).await.unwrap()
    };
    let entry = publish("test-skill", case.text("tags")).await;
    match case.text("do") {
        "publish" => same(
            json!({
                "id": if entry.id == 0 { "zero" } else { "non-zero" },
                "list_shared": registry.search("").await.len(),
                "search:test": registry.search("test").await.len(),
                "by_id": registry.get(&user("user2"), entry.id).await.unwrap().name,
                "by_type_name": registry.find(Kind::Skill, "test-skill").await.unwrap().name,
            }),
            case.expected.clone(),
        ),
        "unpublish" => {
            let done = registry.unpublish(&user(case.text("by")), entry.id).await;
            match case.expected.get("list_shared") {
                Some(count) => same(&json!(registry.search("").await.len()), count),
                None => same((done.is_err(), registry.search("").await.len()), (true, 1)),
            }
        }
        _ => {
            publish("other-skill", "").await;
            same(
                json!({ "list_by_author": registry.mine(&author).await.unwrap().published.len() }),
                case.expected.clone(),
            )
        }
    }
}
