//! Publications at once: of one name, of one content, and of a skill that goes meanwhile.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::doors::{AGENT, ALICE, ON, OPENAI, create, told};
use crate::support::{Client, Service, at_once};

/// Skills that are sent so. One round in three or four shows a service that looks at the layer before it waits for it.
const ROUNDS: usize = 12;

/// A word for a base, of which names of skills are made.
fn door(base: &str) -> &'static str {
    match base {
        ALICE => "alice",
        OPENAI => "openai",
        _ => "anthropic",
    }
}

fn versions(client: &Client, base: &str, skill: &str) -> usize {
    let list = told(&client.get(format!("{base}/{skill}/versions")), 200);
    list["data"].as_array().unwrap().len()
}

#[test]
fn of_creates_of_one_name_one_succeeds_whatever_they_bring() {
    let service = Service::configured(ON);
    let client = &service.client;
    for base in [AGENT, OPENAI, ALICE] {
        let door = door(base);
        for round in 0..ROUNDS {
            let name = format!("{door}-{round}");
            // In every other round all bring the same.
            let text = |number: usize| if round % 2 == 0 { number.to_string() } else { "same".to_owned() };
            let replies = at_once(|number| create(client, base, &name, &text(number)));
            let (made, others): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
            for other in others {
                let answer = told(other, 400);
                let code = answer["error"].get("code").or(answer["error"]["details"].get("error_code"));
                assert_eq!(code.and_then(Value::as_str), Some("already_exists"), "{answer}");
            }
            assert_eq!(made.len(), 1, "{base} {name}");
            assert_eq!(versions(client, base, &name), 1, "{base} {name}");
        }
    }
}

#[test]
fn the_same_version_many_times_at_once_is_one() {
    let service = Service::configured(ON);
    let client = &service.client;
    for base in [AGENT, OPENAI, ALICE] {
        let name = door(base);
        told(&create(client, base, name, "first"), 200);
        for round in 0..ROUNDS {
            let text = format!("round {round}");
            let replies = at_once(|_| create(client, &format!("{base}/{name}/versions"), name, &text));
            let ids: BTreeSet<_> =
                replies.iter().map(|reply| told(reply, 200)["id"].as_str().unwrap().to_owned()).collect();
            assert_eq!(ids.len(), 1, "{base} {ids:?}");
            let expected = if base == ALICE { 1 } else { round + 2 };
            assert_eq!(versions(client, base, name), expected, "{base} round {round}");
        }
        // Each was published once, so that the numbers have no gaps.
        let native = client.get(format!("/v1/skills/u/demo/{name}/versions?limit=100"));
        if base != ALICE {
            let numbers: Vec<u64> = native.ok()["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|version| version["number"].as_u64().unwrap())
                .collect();
            assert_eq!(numbers, (1..=ROUNDS as u64 + 1).rev().collect::<Vec<_>>(), "{base}");
        }
    }
}

#[test]
fn a_version_of_a_skill_that_goes_meanwhile_does_not_bring_it_back() {
    let service = Service::configured(ON);
    let client = &service.client;
    for base in [AGENT, OPENAI, ALICE] {
        for round in 0..ROUNDS {
            let name = format!("{}-{round}", door(base));
            told(&create(client, base, &name, "first"), 200);
            let target = format!("{base}/{name}");
            let replies = at_once(|number| match number {
                0 => client.request("DELETE", target.clone()).send(),
                number => create(client, &format!("{target}/versions"), &name, &number.to_string()),
            });
            told(&replies[0], 200);
            for reply in &replies[1..] {
                assert!(matches!(reply.status, 200 | 404), "{}", String::from_utf8_lossy(&reply.body));
            }
            told(&client.get(target), 404);
        }
    }
}
