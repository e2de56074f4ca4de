//! [`CommandPolicy`]: the whitelist, and the one entrance to the scan of arguments.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::anchors::Anchors;
use super::refusal::{Refusal, excerpt};
use super::rules::Rules;
use super::shell::Commands;
use super::vector::{Judging, Scan};
use super::whitelist::{Profile, Whitelist};
use super::word::{Edit, Edits, Word, edited};
use crate::RunLimits;

/// Longest single argument with its NUL, in bytes (`MAX_ARG_STRLEN` of execve(2)).
const ARGUMENT_BYTES_MAX: usize = 131_072;
/// The bytes that execve(2) adds to an argument: its NUL and its pointer.
const ARGUMENT_COST_BYTES: usize = 9;
/// Longest name of a further direct command, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Why a policy cannot be made.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// A configured command is not a bare file name of at most 64 bytes.
    #[error(
        "`{0}` cannot be a direct command: give a bare name such as `node`, of at most {NAME_BYTES_MAX} letters, \
         digits, `.`, `_`, `+` or `-`, that begins with a letter or digit"
    )]
    CommandName(String),
    /// The rules compiled into this program cannot be read.
    #[error("the built-in command rules cannot be read")]
    Rules(#[from] toml::de::Error),
}

/// A command that may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedCommand {
    /// The bare name of the program, an alias resolved (`python` is `python3`).
    pub program: String,
    /// The arguments to start it with, without the program itself; paths in an alias form are rewritten.
    pub args: Vec<String>,
}

/// Decides which commands may run and where their arguments may point.
#[derive(Clone, Debug)]
pub struct CommandPolicy {
    whitelist: Whitelist,
    arguments_bytes: usize,
    scans: ScanOf,
}

/// What is scanned for paths that lead out of the tree, before the kernel sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanOf {
    /// The arguments of direct programs. In lines for the shell the kernel alone judges.
    #[default]
    Founding,
    /// Lines for the shell, too.
    All,
}

impl CommandPolicy {
    /// Makes the policy of `profile`, with the bare names `extra_direct` as further direct commands.
    ///
    /// # Errors
    /// * [`PolicyError::CommandName`]: one of `extra_direct` is no bare name.
    /// * [`PolicyError::Rules`]: the program was built with broken rules; the tests exclude it.
    pub fn new(profile: Profile, extra_direct: &[String]) -> Result<Self, PolicyError> {
        let rules = Rules::load()?;
        let mut extra: Vec<String> = Vec::new();
        for name in extra_direct {
            if !is_bare_name(name) {
                return Err(PolicyError::CommandName(excerpt(name)));
            }
            if !extra.contains(name) && rules.direct.iter().all(|program| program.name != *name) {
                extra.push(name.clone());
            }
        }
        if profile == Profile::Developer {
            let further = rules.developer.iter().map(|program| program.name.clone());
            let further: Vec<String> = further.filter(|name| !extra.contains(name)).collect();
            extra.extend(further);
        }
        let whitelist = Whitelist { profile, rules, extra };
        let arguments_bytes = RunLimits::default().arguments_bytes;
        Ok(Self { whitelist, arguments_bytes, scans: ScanOf::default() })
    }

    /// The same policy with another bound on all arguments together, in bytes
    /// ([`RunLimits::arguments_bytes`]; 128 KiB unless set).
    #[must_use]
    pub fn with_arguments_bytes(mut self, bytes: usize) -> Self {
        self.arguments_bytes = bytes;
        self
    }

    /// The same policy, with `scans` for what is scanned.
    #[must_use]
    pub fn with_scan(mut self, scans: ScanOf) -> Self {
        self.scans = scans;
        self
    }

    /// How far the whitelist reaches below the command itself.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.whitelist.profile
    }

    /// Names of the programs that a caller may start, configured ones last.
    pub fn direct(&self) -> impl Iterator<Item = &str> {
        self.whitelist.direct()
    }

    /// Directories, absolute, whose programs descendants may execute because a program of the list starts them.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        let is_listed = self.whitelist.profile == Profile::Developer;
        let programs = self.whitelist.rules.developer.iter().filter(move |_| is_listed);
        programs.flat_map(|program| program.directories.iter().map(String::as_str))
    }

    /// Further names of direct programs, such as `python`, each with the program's own.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.whitelist
            .rules
            .direct
            .iter()
            .flat_map(|program| program.aliases.iter().map(|alias| (alias.as_str(), program.name.as_str())))
    }

    /// Names of the further programs that descendants may execute; none in [`Profile::Strict`].
    ///
    /// In [`Profile::Open`] they are a part of what may be executed, not all of it.
    pub fn helpers(&self) -> impl Iterator<Item = &str> {
        self.whitelist.helpers()
    }

    /// Checks a command and its arguments as a caller sent them, for the tree of `anchors`.
    ///
    /// Costs time linear in the length of the arguments, at most 16 times over for commands inside commands.
    ///
    /// # Errors
    /// * [`Refusal::CommandNotAllowed`]: `command` is no direct command.
    /// * [`Refusal::PathEscape`]: an argument points outside the tree.
    /// * [`Refusal::Invalid`]: a NUL byte, too many bytes, or a script that no shell could read.
    pub fn check(
        &self,
        command: &str,
        args: &[String],
        anchors: &Anchors,
    ) -> Result<CheckedCommand, Refusal> {
        let program = self.whitelist.program(command)?;
        self.check_size(args)?;
        let edits = self.scan(program, args, anchors, Judging::Refuse)?;
        self.rewritten(program, args, edits)
    }

    /// Reads the arguments of `program` and returns the rewriting they need.
    fn scan(
        &self,
        program: &str,
        args: &[String],
        anchors: &Anchors,
        judging: Judging,
    ) -> Result<Edits, Refusal> {
        let words: Vec<Word> =
            args.iter().enumerate().map(|(index, text)| Word::argument(index, text)).collect();
        let mut edits = Edits::new();
        Scan::new(&self.whitelist, anchors, judging).arguments(program, &words, &mut edits)?;
        Ok(edits)
    }

    fn rewritten(&self, program: &str, args: &[String], edits: Edits) -> Result<CheckedCommand, Refusal> {
        let mut edits_of: Vec<Vec<Edit>> = vec![Vec::new(); args.len()];
        for (index, edit) in edits {
            if let Some(edits) = edits_of.get_mut(index) {
                edits.push(edit);
            }
        }
        let args: Vec<String> = args.iter().zip(edits_of).map(|(text, edits)| edited(text, edits)).collect();
        self.check_size(&args)?;
        Ok(CheckedCommand { program: program.to_owned(), args })
    }

    /// Checks or only rewrites a line for the shell, which becomes `bash -c <script>`, as [`ScanOf`] says.
    ///
    /// # Errors
    /// As [`CommandPolicy::check_script`] or [`CommandPolicy::rewrite_script`].
    pub fn line(&self, script: &str, anchors: &Anchors) -> Result<CheckedCommand, Refusal> {
        match self.scans {
            ScanOf::Founding => self.rewrite_script(script, anchors),
            ScanOf::All => self.check_script(script, anchors),
        }
    }

    /// Checks a line for the shell, which becomes `bash -c <script>`, as [`CommandPolicy::check`] does arguments.
    ///
    /// # Errors
    /// As [`CommandPolicy::check`]; a [`Refusal::PathEscape`] then has no position.
    pub fn check_script(&self, script: &str, anchors: &Anchors) -> Result<CheckedCommand, Refusal> {
        self.check("bash", &shell_arguments(script), anchors).map_err(Refusal::nowhere)
    }

    /// Prepares a line for the shell, which becomes `bash -c <script>`: paths in an alias form are rewritten, and the
    /// kernel judges where the others lead.
    ///
    /// # Errors
    /// [`Refusal::Invalid`]: a NUL byte or too many bytes.
    pub fn rewrite_script(&self, script: &str, anchors: &Anchors) -> Result<CheckedCommand, Refusal> {
        let args = shell_arguments(script);
        self.check_size(&args).map_err(Refusal::nowhere)?;
        // A script that this scan cannot read to its end is left as it is; the shell tells what is wrong with it.
        let edits = self.scan("bash", &args, anchors, Judging::RewriteOnly).unwrap_or_default();
        self.rewritten("bash", &args, edits).map_err(Refusal::nowhere)
    }

    fn check_size(&self, args: &[String]) -> Result<(), Refusal> {
        let mut total = 0;
        for (index, argument) in args.iter().enumerate() {
            let place = index + 1;
            if argument.contains('\0') {
                return Err(Refusal::invalid(format!("argument {place} holds a NUL byte: remove it")));
            }
            if argument.len() >= ARGUMENT_BYTES_MAX {
                return Err(Refusal::invalid(format!(
                    "argument {place} has {} bytes, at most {} are possible: write the text to a file and pass its name",
                    argument.len(),
                    ARGUMENT_BYTES_MAX - 1
                )));
            }
            total += argument.len() + ARGUMENT_COST_BYTES;
        }
        if total > self.arguments_bytes {
            return Err(Refusal::invalid(format!(
                "the arguments take {total} bytes ({ARGUMENT_COST_BYTES} more than its length each), at most {} are \
                 possible: write long texts to a file and pass its name",
                self.arguments_bytes
            )));
        }
        Ok(())
    }
}

/// The arguments of the shell for a script.
fn shell_arguments(script: &str) -> Vec<String> {
    // bash would take a script that begins so for an option.
    let end_of_options = script.starts_with(['-', '+']).then(|| "--".to_owned());
    std::iter::once("-c".to_owned()).chain(end_of_options).chain(std::iter::once(script.to_owned())).collect()
}

fn is_bare_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(profile: Profile) -> CommandPolicy {
        CommandPolicy::new(profile, &[]).unwrap()
    }

    fn anchors() -> Anchors {
        Anchors { inside: "/workspace".to_owned(), ..Anchors::default() }
    }

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn every_example_in_the_rules_is_decided_as_it_says() {
        let policy = policy(Profile::Default);
        let anchors = anchors();
        let decide =
            |name: &str, args: &[String]| policy.scan(name, args, &anchors, Judging::Refuse).map(drop);
        for program in policy.whitelist.rules.direct.iter().chain(&policy.whitelist.rules.helpers) {
            for args in &program.allowed {
                assert_eq!(decide(&program.name, args), Ok(()), "{} {args:?}", program.name);
            }
            for args in &program.refused {
                let refusal = decide(&program.name, args);
                assert!(matches!(refusal, Err(Refusal::PathEscape { .. })), "{} {args:?}", program.name);
            }
        }
    }

    #[test]
    fn python_is_an_alias_of_python3() {
        let checked = policy(Profile::Default).check("python", &texts(&["a.py"]), &anchors()).unwrap();
        assert_eq!(checked, CheckedCommand { program: "python3".to_owned(), args: texts(&["a.py"]) });
    }

    #[test]
    fn a_refused_command_is_told_what_is_allowed_and_what_to_do() {
        let policy = policy(Profile::Default);
        for (command, wanted) in [
            ("perl", "use one of"),
            ("head", "`-c`"),
            ("ls -la", "arguments in the body"),
            ("/bin/ls", "arguments in the body"),
            ("", "use one of"),
            ("列出", "use one of"),
        ] {
            let message = policy.check(command, &[], &anchors()).unwrap_err().to_string();
            assert!(message.contains(wanted) && message.contains("python3, pip, pip3"), "{message}");
        }
    }

    #[test]
    fn strict_lends_no_helper_and_open_names_the_same_direct_commands() {
        assert_eq!(policy(Profile::Strict).helpers().count(), 0);
        assert!(policy(Profile::Default).helpers().any(|name| name == "head"));
        for profile in [Profile::Strict, Profile::Default, Profile::Open] {
            assert_eq!(policy(profile).direct().count(), 17);
            assert_eq!(policy(profile).directories().count(), 0);
        }
    }

    #[test]
    fn developers_may_start_more_programs_with_all_their_parts() {
        let policy = policy(Profile::Developer);
        assert!(policy.check("git", &texts(&["status"]), &anchors()).is_ok());
        assert!(policy.check("git", &texts(&["-C", "/etc", "status"]), &anchors()).is_err());
        for parts in ["/usr/lib/git-core", "/usr/local/libexec/git-core"] {
            assert!(policy.directories().any(|directory| directory == parts), "{parts}");
        }
        assert!(
            policy
                .directories()
                .all(|directory| directory.starts_with("/usr/") || directory.starts_with("/opt/"))
        );
        assert!(policy.helpers().any(|name| name == "head"));
        for name in ["ssh", "nc", "mount", "sudo"] {
            assert!(policy.check(name, &[], &anchors()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_system_program_named_in_a_script_must_be_on_a_list() {
        for (profile, script, passes) in [
            (Profile::Default, "/usr/bin/python3 x.py", true),
            (Profile::Default, "/usr/bin/head -n 1 a", true),
            (Profile::Strict, "/usr/bin/head -n 1 a", false),
            (Profile::Default, "/usr/bin/perl -e 1", false),
            (Profile::Open, "/usr/bin/perl -e 1", true),
            (Profile::Open, "/opt/x/perl -e 1", false),
        ] {
            assert_eq!(policy(profile).check_script(script, &anchors()).is_ok(), passes, "{script}");
        }
    }

    #[test]
    fn a_configured_command_is_direct_and_a_bad_name_is_refused() {
        let policy = CommandPolicy::new(Profile::Default, &texts(&["node", "ls", "node"])).unwrap();
        assert_eq!(policy.direct().count(), 18);
        assert!(policy.check("node", &texts(&["a.js"]), &anchors()).is_ok());
        assert!(policy.check("node", &texts(&["/etc/a.js"]), &anchors()).is_err());
        for name in ["", "a b", "/bin/x", "-x", "..", "a\0"] {
            let error = CommandPolicy::new(Profile::Default, &texts(&[name])).unwrap_err();
            assert!(matches!(error, PolicyError::CommandName(_)), "{name:?}");
        }
    }

    #[test]
    fn nul_bytes_and_too_many_bytes_are_refused() {
        let small = policy(Profile::Default).with_arguments_bytes(100);
        assert!(small.check("cat", &texts(&["a\0b"]), &anchors()).is_err());
        assert!(small.check("cat", &texts(&[&"a".repeat(92)]), &anchors()).is_err());
        assert!(small.check("cat", &texts(&[&"a".repeat(91)]), &anchors()).is_ok());
        assert!(small.check("cat", &vec![String::new(); 12], &anchors()).is_err());
    }

    #[test]
    fn a_line_for_the_kernel_to_judge_is_rewritten_and_never_refused_for_where_it_leads() {
        let policy = policy(Profile::Default);
        let anchors = Anchors {
            inside: "/data/w".to_owned(),
            aliases: vec!["/workspace".to_owned()],
            temporary: Some("/data/home/tmp/1".to_owned()),
        };
        for (line, expected) in [
            ("cd src && cat ../README.md", "cd src && cat ../README.md"),
            ("cat /etc/os-release | head -1", "cat /etc/os-release | head -1"),
            ("cat /workspace/a /etc/b", "cat /data/w/a /etc/b"),
            ("echo x > /tmp/x; ls /tmp", "echo x > /data/home/tmp/1/x; ls /data/home/tmp/1"),
            ("cat '/var/tmp/x'", "cat '/data/home/tmp/1/x'"),
            ("/usr/bin/perl -e 1", "/usr/bin/perl -e 1"),
            ("cat 'never ends", "cat 'never ends"),
            ("cat /workspace/../x", "cat /workspace/../x"),
        ] {
            assert_eq!(policy.rewrite_script(line, &anchors).unwrap().args[1], expected);
        }
        assert!(policy.rewrite_script("cat a\0b", &anchors).is_err());
        assert!(policy.rewrite_script(&"$(".repeat(20_000), &anchors).is_ok());
    }

    #[test]
    fn a_shell_line_that_looks_like_an_option_stays_a_script() {
        let checked = policy(Profile::Default).check_script("-x", &anchors()).unwrap();
        assert_eq!(checked.args, texts(&["-c", "--", "-x"]));
    }

    #[test]
    fn commands_inside_commands_are_followed_to_a_depth_and_then_refused() {
        let policy = policy(Profile::Default);
        for script in
            ["env ".repeat(9000), "$(".repeat(20_000), "${a:-".repeat(20_000), "\"$(".repeat(20_000)]
        {
            let refusal = policy.check_script(&script, &anchors()).unwrap_err();
            assert!(refusal.to_string().contains("nested"), "{refusal}");
        }
        assert!(policy.check_script("env env env cat /etc/passwd", &anchors()).is_err());
    }
}
