//! [`Plan`]: how a skill of the corpus is packed and run, and what must come of it, as its TOML file says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::pack::Packed;
use crate::stage::Tier;

/// Where skills and plans are.
const SKILLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/skills");

/// Everything about one skill. Its name is that of its directory and of its front matter.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    #[serde(skip)]
    pub(crate) name: String,
    /// What it does, for the table.
    pub(crate) does: String,
    /// How people pack it.
    pub(crate) packed: Packed,
    /// Programs that the service's host must have.
    #[serde(default)]
    pub(crate) programs: Vec<String>,
    /// Modules that the host's Python must have.
    #[serde(default)]
    pub(crate) modules: Vec<String>,
    /// Whether it needs the repository that this suite serves.
    #[serde(default)]
    pub(crate) repository: bool,
    /// The user's files in the workspace.
    #[serde(default)]
    pub(crate) given: Vec<Given>,
    /// The commands, in order.
    #[serde(default)]
    pub(crate) step: Vec<Step>,
    /// The files that must be there in the end.
    #[serde(default)]
    pub(crate) made: Vec<Made>,
}

/// A file of the user's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Given {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A tree of the user's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// The skill's own tree.
    #[default]
    Skill,
    /// The workspace, with the skill in `skills/NAME`.
    Workspace,
}

/// A command and what it must do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// Where it runs.
    #[serde(default)]
    pub(crate) place: Place,
    /// A line for the shell; `{repository}` stands for the address of the repository.
    pub(crate) line: Option<String>,
    /// Instead of a line: a program and its arguments.
    #[serde(default)]
    pub(crate) command: Vec<String>,
    /// Standard input.
    #[serde(default)]
    pub(crate) stdin: String,
    /// In a skill: whether it sees the workspace.
    #[serde(default)]
    pub(crate) workspace: bool,
    /// Words that its output must have.
    #[serde(default)]
    pub(crate) says: Vec<String>,
    /// What happens at tier `landlock` instead; nothing follows it there.
    pub(crate) landlock: Option<Refusal>,
}

/// A command that a tier refuses something, for a stated reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refusal {
    /// Why, for the table.
    pub(crate) because: String,
    /// Words that its output must have.
    #[serde(default)]
    pub(crate) says: Vec<String>,
    /// Words of the hint in its result; nothing where the service has no word of advice.
    pub(crate) hint: Option<String>,
}

/// A file that came out, and what another program reads in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Made {
    #[serde(default)]
    pub(crate) place: Place,
    pub(crate) path: String,
    /// A line for the shell of the test's host, with the file as `$FILE`; without it the file is read as text.
    pub(crate) reader: Option<String>,
    /// Words that the reader must say.
    pub(crate) says: Vec<String>,
}

impl Plan {
    /// The directory of the skill.
    pub(crate) fn directory(&self) -> PathBuf {
        Path::new(SKILLS).join(&self.name)
    }

    /// The refusal that ends it at `tier`, if one does.
    pub(crate) fn refusal(&self, tier: Tier) -> Option<&Refusal> {
        let at = |step: &'_ Step| step.landlock.is_some();
        match tier {
            Tier::Landlock => self.step.iter().find(|step| at(step))?.landlock.as_ref(),
            Tier::Namespaces => None,
        }
    }
}

/// All plans, by name.
///
/// # Panics
/// A plan cannot be read, or a skill has none.
pub(crate) fn all() -> Vec<Arc<Plan>> {
    let entries = std::fs::read_dir(SKILLS).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) =
        entries.partition(|path| path.is_dir());
    let names: BTreeSet<PathBuf> = files.iter().map(|file| file.with_extension("")).collect();
    assert_eq!(directories, names, "every skill has a plan, and every plan a skill");
    let read = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        let plan: Plan = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Arc::new(Plan { name: file.file_stem().unwrap().to_str().unwrap().to_owned(), ..plan })
    };
    files.iter().map(read).collect()
}
