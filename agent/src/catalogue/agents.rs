//! [`AgentStore`]: the agents that a user can hand work to.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use policy::front_matter::{head, property};
use serde_yaml_ng::Value;

use super::cache::{Cache, Clock, Weigh};
use super::render::element;
use super::skills::is_of_the_backend;
use super::{AGENTS_DIRECTORY, ENTRIES_MAX, Forget, READS_MAX};
use crate::Place;
use crate::place::Directory;
use sandbox::{FileKind, Result, Sandbox, UserId};

/// The largest file of an agent, in bytes: 256 KiB.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// All files of agents of one directory, in bytes: 4 MiB.
const DIRECTORY_BYTES_MAX: usize = 4 << 20;
/// Longest name, in characters.
const NAME_CHARACTERS_MAX: usize = 64;
/// Tools that one names.
const TOOLS_MAX: usize = 100;

/// An agent: what it is called, what it may do, and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Letters and digits of any script, `-` and `_`.
    pub name: String,
    /// When to use it.
    pub description: String,
    /// The tools it may call; all where it names none.
    pub tools: Vec<String>,
    /// Whether it remembers.
    pub memory: bool,
    /// Whether it may send messages to people.
    pub send_message: bool,
    /// Whether it may hand work to further agents.
    pub spawn_agent: bool,
    /// Its instructions.
    pub system_prompt: String,
}

impl Agent {
    /// Reads an agent's file; `stem` is its name where the file gives none.
    ///
    /// # Errors
    /// Why it is none, in a sentence.
    pub fn parse(stem: &str, text: &str) -> Result<Self, String> {
        let head = head(text);
        if head.fields.is_none() && head.name.is_none() {
            return Err("it has no front matter".to_owned());
        }
        // Without them it could do everything.
        if head.has_unread_rights {
            return Err("its front matter is no YAML, and says what it may do: quote its texts".to_owned());
        }
        let (tools, capabilities) = (head.right("tools")?, head.right("capabilities")?);
        let name = head.name.clone().unwrap_or_else(|| stem.to_owned());
        if !is_agent_name(&name) {
            return Err(format!(
                "the name `{}` may have letters, digits, `-` and `_` only",
                name.escape_debug()
            ));
        }
        let tools = match tools {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Sequence(tools)) => tools
                .iter()
                .map(|tool| tool.as_str().map(str::to_owned).ok_or("`tools` is a list of names"))
                .collect::<Result<Vec<_>, _>>()?,
            Some(Value::String(tools)) => {
                tools.split(',').map(|tool| tool.trim().to_owned()).filter(|tool| !tool.is_empty()).collect()
            }
            Some(_) => return Err("`tools` is a list of names".to_owned()),
        };
        if tools.len() > TOOLS_MAX {
            return Err(format!("it names {} tools: at most {TOOLS_MAX} are possible", tools.len()));
        }
        let is_tool =
            |tool: &String| tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if let Some(tool) = tools.iter().find(|tool| tool.is_empty() || !is_tool(tool)) {
            return Err(format!("`{}` is no name of a tool", tool.escape_debug()));
        }
        let capability = |name: &str, default: bool| {
            let named = capabilities.and_then(Value::as_mapping).and_then(|all| property(all, name));
            named.and_then(Value::as_bool).unwrap_or(default)
        };
        Ok(Self {
            tools,
            memory: capability("memory", false),
            send_message: capability("send_message", false),
            spawn_agent: capability("spawn_agent", true),
            system_prompt: head.body.trim().to_owned(),
            description: head.description.unwrap_or_default(),
            name,
        })
    }
}

fn is_agent_name(name: &str) -> bool {
    let is_possible = |character: char| character.is_alphanumeric() || matches!(character, '-' | '_');
    !name.is_empty() && name.chars().count() <= NAME_CHARACTERS_MAX && name.chars().all(is_possible)
}

/// The agents of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agents {
    /// By name.
    pub agents: Vec<Agent>,
    /// The agents that could not be read, one sentence each; the rest is there.
    pub problems: Vec<String>,
}

/// The agents that all users share, and those in each user's `agents`, which take the place of shared ones of their name.
#[derive(Debug)]
pub struct AgentStore {
    shared: Vec<Place>,
    sandbox: Arc<dyn Sandbox>,
    cache: Cache<Agents>,
}

impl AgentStore {
    /// A store of agents in `shared` directories, later ones before earlier ones, and in the workspaces of `sandbox`.
    #[must_use]
    pub fn new(shared: Vec<Place>, sandbox: Arc<dyn Sandbox>, clock: Clock) -> Self {
        Self { shared, sandbox, cache: Cache::new(clock) }
    }

    /// The agents of a user, as they were at most [`TTL`](super::TTL) ago.
    ///
    /// # Errors
    /// A directory of agents could not be listed.
    pub async fn agents(&self, user: &UserId) -> Result<Arc<Agents>> {
        self.cache.get(user, || self.read(user)).await
    }

    /// The agents of a user as a block of a prompt; empty when there are none.
    ///
    /// # Errors
    /// As for [`AgentStore::agents`].
    pub async fn catalogue(&self, user: &UserId) -> Result<String> {
        Ok(self.agents(user).await?.render())
    }

    async fn read(&self, user: &UserId) -> Result<Agents> {
        let workspace = self.sandbox.workspace(user).await?;
        let workspace = Directory { sandbox: &*self.sandbox, user, root: workspace };
        let mut directories: Vec<Directory<'_>> = self.shared.iter().map(Place::directory).collect();
        directories.push(workspace.below(AGENTS_DIRECTORY)?);
        let (mut agents, mut problems) = (BTreeMap::new(), Vec::new());
        for directory in directories {
            scan(&directory, &mut agents, &mut problems).await?;
        }
        Ok(Agents { agents: agents.into_values().collect(), problems })
    }
}

impl Forget for AgentStore {
    fn forget(&self, user: &UserId) {
        self.cache.forget(user);
    }

    fn forget_all(&self) {
        self.cache.forget_all();
    }
}

/// Adds the agents of a directory: its files `*.md`. One that is none is a problem, and no more.
async fn scan(
    directory: &Directory<'_>,
    agents: &mut BTreeMap<String, Agent>,
    problems: &mut Vec<String>,
) -> Result<()> {
    let is_candidate = |kind: FileKind| matches!(kind, FileKind::File | FileKind::Symlink);
    let entries = directory.entries().await?.into_iter().filter(|entry| is_candidate(entry.kind));
    let mut names: Vec<String> = entries
        .map(|entry| entry.name)
        .filter(|name| name.ends_with(".md") && !name.starts_with('.'))
        .collect();
    if names.len() > ENTRIES_MAX {
        problems.push(format!("{} has {} agents: only {ENTRIES_MAX} are told", directory.root, names.len()));
        names.truncate(ENTRIES_MAX);
    }
    let mut reads = stream::iter(names)
        .map(|name| async move {
            let text = directory.read(&name, FILE_BYTES_MAX).await;
            (name, text)
        })
        .buffered(READS_MAX);
    let mut bytes = 0;
    while let Some((name, text)) = reads.next().await {
        if let Ok(Some(text)) = &text {
            bytes += text.len();
        }
        if bytes > DIRECTORY_BYTES_MAX {
            problems.push(format!(
                "{} has more than {DIRECTORY_BYTES_MAX} bytes of agents: those from `{}` on are not told",
                directory.root,
                name.escape_debug()
            ));
            break;
        }
        let stem = name.strip_suffix(".md").unwrap_or(&name);
        let agent = match text {
            Ok(Some(text)) => Agent::parse(stem, &String::from_utf8_lossy(&text)),
            Ok(None) => continue,
            Err(error) if is_of_the_backend(error.kind()) => return Err(error),
            Err(error) => Err(error.kind().to_string()),
        };
        match agent {
            Ok(agent) => drop(agents.insert(agent.name.clone(), agent)),
            Err(reason) => problems.push(format!("agent `{}`: {reason}", name.escape_debug())),
        }
    }
    Ok(())
}

impl Weigh for Agents {
    fn bytes(&self) -> usize {
        let bytes = |agent: &Agent| {
            let tools: usize = agent.tools.iter().map(|tool| tool.len() + 24).sum();
            agent.name.len() + agent.description.len() + agent.system_prompt.len() + tools + 128
        };
        self.agents.iter().map(bytes).sum::<usize>() + self.problems.iter().map(String::len).sum::<usize>()
    }
}

impl Agents {
    /// A block of a prompt; empty when there are none.
    #[must_use]
    pub fn render(&self) -> String {
        if self.agents.is_empty() {
            return String::new();
        }
        let mut text = "# Available Agents (SubAgents)\n\nAn agent does a task of its kind by itself and reports.\n\n<available_agents>\n".to_owned();
        for agent in &self.agents {
            text.push_str("  <agent>\n");
            text.push_str(&element("name", &agent.name));
            text.push_str(&element("description", &agent.description));
            if !agent.tools.is_empty() {
                text.push_str(&element("tools", &agent.tools.join(", ")));
            }
            text.push_str("  </agent>\n");
        }
        text.push_str("</available_agents>\n");
        text
    }
}
