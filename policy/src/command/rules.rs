//! The data of `rules/*.toml`: programs, the grammars of their arguments, the shell's own words.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::argument::Role;

const DIRECT: &str = include_str!("../../rules/direct.toml");
const HELPERS: &str = include_str!("../../rules/helpers.toml");
const DEVELOPER: &str = include_str!("../../rules/developer.toml");
const GRAMMARS: &str = include_str!("../../rules/grammars.toml");
const BUILTINS: &str = include_str!("../../rules/builtins.toml");

/// One program that may run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// Other names for it in requests.
    #[serde(default)]
    pub(crate) aliases: Vec<String>,
    /// A name in `grammars.toml`.
    pub(crate) grammar: String,
    /// Why it is on its list. Read by people, and by the test that asks for it.
    #[cfg_attr(not(test), expect(dead_code, reason = "documentation inside the data"))]
    pub(crate) reason: String,
    /// Argument lists that must pass; run as tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are run by the tests"))]
    pub(crate) allowed: Vec<Vec<String>>,
    /// Argument lists that must be refused; run as tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are run by the tests"))]
    #[serde(default)]
    pub(crate) refused: Vec<Vec<String>>,
}

/// A program of the profile `developer`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeveloperProgram {
    pub(crate) name: String,
    /// Why it is on its list. Read by people, and by the test that asks for it.
    #[cfg_attr(not(test), expect(dead_code, reason = "documentation inside the data"))]
    pub(crate) reason: String,
    /// Directories, absolute, of parts that it starts itself.
    #[serde(default)]
    pub(crate) directories: Vec<String>,
}

/// How a command's words are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// Options and operands, as in the POSIX utility syntax guidelines with GNU's long options.
    #[default]
    Options,
    /// Every word is an operand.
    Operands,
    /// The invocation of a shell.
    Shell,
    /// Starting points, then an expression.
    Find,
    /// A script in one word, or a command in several.
    Eval,
}

/// The operands after the listed ones of a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tail {
    /// Arguments of a script: text of unknown meaning.
    Text,
    /// Another command with its arguments.
    Command,
}

/// The grammar of a command's arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grammar {
    #[serde(default)]
    pub(crate) form: Form,
    /// Roles of the operands in order; the last one repeats unless there is a tail.
    #[serde(default)]
    pub(crate) operands: Vec<Role>,
    /// The operands after exactly the listed ones.
    #[serde(default)]
    pub(crate) tail: Option<Tail>,
    /// Options with a value, by the role of the value.
    #[serde(default)]
    options: BTreeMap<Role, Vec<String>>,
    /// Options that replace the first operand (`grep -e`).
    #[serde(default)]
    pub(crate) supplies_first: Vec<String>,
    /// Short options whose optional value is always attached (`sed -i.bak`).
    #[serde(default)]
    pub(crate) attached: Vec<String>,
    /// Options after whose value the tail begins (`python3 -c`).
    #[serde(default)]
    pub(crate) last: Vec<String>,
    /// Options (of `find`) that begin another command.
    #[serde(default)]
    pub(crate) commands: Vec<String>,
    #[serde(skip)]
    roles: HashMap<String, Role>,
}

impl Grammar {
    /// The role of the value of `option`, when it takes one.
    pub(crate) fn option(&self, option: &str) -> Option<Role> {
        self.roles.get(option).copied()
    }

    /// The role of the operand at `index`, counted from 0.
    pub(crate) fn operand(&self, index: usize) -> Role {
        self.operands.get(index).or(self.operands.last()).copied().unwrap_or(Role::Text)
    }
}

/// All rules.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) direct: Vec<Program>,
    pub(crate) helpers: Vec<Program>,
    pub(crate) developer: Vec<DeveloperProgram>,
    grammars: HashMap<String, Grammar>,
    /// Grammar names of direct programs, helpers and the shell's own words.
    names: HashMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Programs {
    program: Vec<Program>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeveloperPrograms {
    program: Vec<DeveloperProgram>,
}

impl Rules {
    /// Reads the data compiled into this crate.
    pub(crate) fn load() -> Result<Self, toml::de::Error> {
        let direct = toml::from_str::<Programs>(DIRECT)?.program;
        let helpers = toml::from_str::<Programs>(HELPERS)?.program;
        let developer = toml::from_str::<DeveloperPrograms>(DEVELOPER)?.program;
        let mut grammars: HashMap<String, Grammar> = toml::from_str(GRAMMARS)?;
        for grammar in grammars.values_mut() {
            for (role, options) in &grammar.options {
                grammar.roles.extend(options.iter().map(|option| (option.clone(), *role)));
            }
        }
        let builtins: BTreeMap<String, Vec<String>> = toml::from_str(BUILTINS)?;
        let mut names = HashMap::new();
        for (grammar, words) in builtins {
            names.extend(words.into_iter().map(|word| (word, grammar.clone())));
        }
        for program in direct.iter().chain(&helpers) {
            for name in program.aliases.iter().chain([&program.name]) {
                names.insert(name.clone(), program.grammar.clone());
            }
        }
        Ok(Self { direct, helpers, developer, grammars, names })
    }

    /// The grammar of a program or of one of the shell's own words.
    pub(crate) fn grammar(&self, name: &str) -> Option<&Grammar> {
        self.grammars.get(self.names.get(name)?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_direct_commands_are_exactly_the_seventeen() {
        let rules = Rules::load().unwrap();
        let names: BTreeSet<&str> = rules.direct.iter().map(|program| program.name.as_str()).collect();
        let expected = BTreeSet::from([
            "python3", "pip", "pip3", "bash", "sh", "ls", "cat", "grep", "sed", "awk", "echo", "cp", "mv",
            "rm", "mkdir", "find", "curl",
        ]);
        assert_eq!(names, expected);
        assert_eq!(rules.direct.len(), 17);
    }

    #[test]
    fn every_program_is_listed_once_with_a_reason_a_grammar_and_an_example() {
        let rules = Rules::load().unwrap();
        let mut seen = BTreeSet::new();
        for program in rules.direct.iter().chain(&rules.helpers) {
            assert!(seen.insert(program.name.clone()), "`{}` is listed twice", program.name);
            assert!(program.reason.len() > 10, "`{}` has no reason", program.name);
            assert!(!program.allowed.is_empty(), "`{}` has no example", program.name);
            assert!(rules.grammar(&program.name).is_some(), "`{}` has no grammar", program.name);
        }
        for program in &rules.developer {
            assert!(seen.insert(program.name.clone()), "`{}` is listed twice", program.name);
            assert!(program.reason.len() > 10, "`{}` has no reason", program.name);
        }
    }

    #[test]
    fn every_name_in_the_rules_leads_to_a_grammar() {
        let rules = Rules::load().unwrap();
        for (name, grammar) in &rules.names {
            assert!(rules.grammars.contains_key(grammar), "`{name}` asks for `{grammar}`");
        }
    }

    #[test]
    fn programs_that_open_other_doors_are_on_no_list() {
        let rules = Rules::load().unwrap();
        for name in
            ["perl", "nc", "ssh", "mount", "su", "sudo", "strace", "gdb", "unshare", "nsenter", "chroot"]
        {
            assert!(!rules.direct.iter().chain(&rules.helpers).any(|program| program.name == name), "{name}");
        }
    }
}
