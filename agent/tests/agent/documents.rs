//! `docs/AGENT.md` describes the tools as a model is told of them, and the examples run.

use std::fmt::Write;
use std::sync::Arc;

use agent::Place;
use agent::catalogue::system_clock;
use agent::offload::{OffloadOptions, OffloadStore, Recall};
use agent::tools::{Tool, Toolbox};
use sandbox::MemSandbox;
use serde_json::Value;

use crate::support::user;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/AGENT.md");
const BEGIN: &str = "<!-- tools: written by agent/tests/agent/documents.rs -->\n";
const END: &str = "<!-- end of tools -->";

async fn toolbox() -> Toolbox {
    let place = Place::in_workspace(Arc::new(MemSandbox::new()), user("server"), "").await.unwrap();
    let store = OffloadStore::new(place, system_clock(), OffloadOptions::default());
    Toolbox::standard().with(Recall::new(Arc::new(store), "s"))
}

/// A tool as its section of the document.
fn section(tool: &dyn Tool) -> String {
    let parameters = tool.parameters();
    let required = parameters["required"].as_array().unwrap();
    let mut text = format!(
        "### {}\n\n{}\n\n| Parameter | Type | |\n| --- | --- | --- |\n",
        tool.name(),
        tool.description()
    );
    for (name, schema) in parameters["properties"].as_object().unwrap() {
        let kind = schema["type"].as_str().unwrap();
        let kind = match schema["enum"].as_array() {
            Some(values) => values
                .iter()
                .filter_map(Value::as_str)
                .map(|value| format!("`{value}`"))
                .collect::<Vec<_>>()
                .join(", "),
            None => kind.to_owned(),
        };
        let mark = if required.contains(&Value::String(name.clone())) { " *" } else { "" };
        writeln!(text, "| `{name}`{mark} | {kind} | {} |", schema["description"].as_str().unwrap()).unwrap();
    }
    text.push('\n');
    text
}

#[tokio::test]
async fn the_document_says_of_every_tool_what_its_schema_says() {
    let expected: String = toolbox().await.tools().map(section).collect();
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var_os("FILESECBOX_RECORD").is_some() {
        std::fs::write(DOCUMENT, format!("{before}{BEGIN}\n{expected}{END}{after}")).unwrap();
    } else {
        assert_eq!(found.trim(), expected.trim(), "write it anew with FILESECBOX_RECORD=1");
    }
}

/// Tools take the arguments that their schemas offer, and no others: the arguments are made of the schema itself.
#[tokio::test]
async fn every_tool_takes_exactly_what_its_schema_offers() {
    let bench = crate::support::Bench::memory().await;
    let toolbox = toolbox().await;
    let context = agent::tools::Context::new(&*bench.sandbox, &bench.session);
    for tool in toolbox.tools() {
        let schema = tool.parameters();
        assert_eq!(schema["additionalProperties"], false, "{}", tool.name());
        let properties = schema["properties"].as_object().unwrap();
        for (name, property) in properties {
            let value = match property["type"].as_str().unwrap() {
                "string" => property["enum"].get(0).cloned().unwrap_or_else(|| "x".into()),
                "integer" => 1.into(),
                "boolean" => true.into(),
                other => panic!("{other}"),
            };
            let mut arguments = serde_json::Map::new();
            // What is required without a default has to be there for the rest to be looked at.
            arguments.extend(properties.contains_key("id").then(|| ("id".to_owned(), "x".into())));
            arguments.insert(name.clone(), value);
            let text =
                toolbox.call(&context, tool.name(), &Value::from(arguments.clone()).to_string()).await.text;
            assert!(!text.contains("invalid parameters"), "{} {name}: {text}", tool.name());
            arguments.insert("surely_unknown".into(), 1.into());
            let text = toolbox.call(&context, tool.name(), &Value::from(arguments).to_string()).await.text;
            assert!(text.contains("unknown field `surely_unknown`"), "{} {name}: {text}", tool.name());
        }
    }
}

#[path = "../../examples/registry.rs"]
mod registry;
#[path = "../../examples/turn.rs"]
mod turn;

#[test]
fn the_examples_run() {
    turn::main().unwrap();
    registry::main().unwrap();
}
