//! The tools as clients see them: those of the toolbox, each call from a directory of its own.

use std::sync::Arc;

use agent::tools;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::Mcp;
use super::target::Target;

/// The parameter that this layer adds: where a call begins.
pub(super) const DIRECTORY: &str = "directory";

/// One tool that is offered.
pub(super) struct Offer {
    /// The name of the tool in the toolbox.
    pub(super) name: &'static str,
    title: &'static str,
    /// Another description than the toolbox has, where that speaks of what lasts between calls.
    description: Option<&'static str>,
    /// Whether it may change something.
    pub(super) changes: bool,
    /// Whether a call may say where it begins.
    pub(super) takes_directory: bool,
}

/// The tools, in the order of lists. *Cd* is none: nothing lasts between calls.
const OFFERS: [Offer; 6] = [
    Offer { name: "Read", title: "Read a file", description: None, changes: false, takes_directory: true },
    Offer { name: "Glob", title: "Find files", description: None, changes: false, takes_directory: true },
    Offer {
        name: "Grep",
        title: "Search in files",
        description: None,
        changes: false,
        takes_directory: true,
    },
    Offer { name: "Edit", title: "Edit a file", description: None, changes: true, takes_directory: true },
    Offer {
        name: "Shell",
        title: "Run a command",
        description: Some(
            "Run a shell command, to its end. Nothing of it lasts but the files: a `cd` and exported variables are gone \
             with the call, so send `directory`. Output beyond 64 KB of a stream is left out in its middle.",
        ),
        changes: true,
        takes_directory: true,
    },
    Offer { name: "Skill", title: "Use a skill", description: None, changes: false, takes_directory: false },
];

impl Mcp {
    /// The tools that the caller of `target` may use. One that is not among them is unknown to it.
    pub(super) fn offers<'a>(&'a self, target: &'a Target) -> impl Iterator<Item = &'static Offer> + 'a {
        let may_change = target.may_change && !self.is_read_only;
        OFFERS.iter().filter(move |offer| may_change || !offer.changes)
    }

    /// The descriptions of these tools.
    pub(super) fn tools(&self, target: &Target) -> Vec<Tool> {
        let of_toolbox = |offer: &Offer| self.toolbox.tools().find(|tool| tool.name() == offer.name);
        let is_networked = self.service.network() != exec::Network::None;
        self.offers(target)
            .filter_map(|offer| Some(offer.described(of_toolbox(offer)?, is_networked)))
            .collect()
    }
}

impl Offer {
    fn described(&self, tool: &dyn tools::Tool, is_networked: bool) -> Tool {
        let mut parameters = tool.parameters();
        if self.takes_directory
            && let Some(properties) = parameters.get_mut("properties").and_then(Value::as_object_mut)
        {
            properties.insert(DIRECTORY.to_owned(), directory());
        }
        let annotations = ToolAnnotations::with_title(self.title).read_only(!self.changes);
        let annotations = match self.changes {
            true => annotations.destructive(true).idempotent(false),
            false => annotations.idempotent(true),
        };
        let annotations = annotations.open_world(self.name == "Shell" && is_networked);
        let description = self.description.unwrap_or_else(|| tool.description());
        let described = Tool::new(self.name, description, object(parameters))
            .with_title(self.title)
            .with_annotations(annotations);
        match tool.data_schema() {
            Some(schema) => described.with_raw_output_schema(object(schema)),
            None => described,
        }
    }
}

/// The schema of the parameter that says where a call begins.
fn directory() -> Value {
    let description = "Directory where this call begins, relative to the workspace or absolute in it; the workspace by default";
    json!({ "type": "string", "description": description })
}

/// A schema, which is an object.
fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(schema) => Arc::new(schema),
        _ => Arc::default(),
    }
}
