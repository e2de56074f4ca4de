//! [`Toolbox`]: the tools that a model is offered, and how it calls them.

use serde_json::{Value, json};

use super::tool::{Context, Refusal, Report, Tool, ToolOutput};
use super::truncate;

/// Longest arguments of a call, in bytes of JSON.
pub const ARGUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The tools that a model is offered.
#[derive(Debug, Default)]
pub struct Toolbox {
    tools: Vec<Box<dyn Tool>>,
}

impl Toolbox {
    /// *Shell*, *Read*, *Edit*, *Glob*, *Grep*, *Cd* and *Skill*.
    #[must_use]
    pub fn standard() -> Self {
        Self::default()
            .with(super::shell::Shell)
            .with(super::read::Read)
            .with(super::edit::Edit::default())
            .with(super::glob::Glob)
            .with(super::grep::Grep)
            .with(super::cd::Cd)
            .with(super::skill::Skill::default())
    }

    /// The same with one more; a tool of that name that is there already is replaced.
    #[must_use]
    pub fn with(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.retain(|other| other.name() != tool.name());
        self.tools.push(Box::new(tool));
        self
    }

    /// The tools, in the order they were added.
    pub fn tools(&self) -> impl Iterator<Item = &dyn Tool> {
        self.tools.iter().map(AsRef::as_ref)
    }

    /// The descriptions for a model: a list of `{name, description, parameters}`.
    #[must_use]
    pub fn schemas(&self) -> Value {
        let one = |tool: &dyn Tool| json!({ "name": tool.name(), "description": tool.description(), "parameters": tool.parameters() });
        Value::Array(self.tools().map(one).collect())
    }

    /// Calls a tool. What goes wrong is an output as well, for the model to read.
    pub async fn call(&self, context: &Context<'_>, name: &str, arguments: &str) -> ToolOutput {
        match self.try_call(context, name, arguments).await {
            Ok(Report { text, data }) => ToolOutput { text, is_error: false, data },
            Err(Refusal(text)) => ToolOutput { text: format!("Error: {text}"), is_error: true, data: None },
        }
    }

    async fn try_call(&self, context: &Context<'_>, name: &str, arguments: &str) -> Result<Report, Refusal> {
        let Some(tool) = self.tools().find(|tool| tool.name() == name) else {
            let names: Vec<&str> = self.tools().map(Tool::name).collect();
            return Err(Refusal::new(format!(
                "there is no tool `{}`: use one of {}",
                truncate(&name.escape_debug().to_string(), 80),
                names.join(", ")
            )));
        };
        if arguments.len() > ARGUMENT_BYTES_MAX {
            let message =
                format!("the arguments have {} bytes: send at most {ARGUMENT_BYTES_MAX}", arguments.len());
            return Err(Refusal(message));
        }
        tool.report(context, arguments).await
    }
}
