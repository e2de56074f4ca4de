//! The words of one command, read by its grammar.

use super::anchors::{Aim, Anchors};
use super::argument::{Role, judge, value_of_assignment};
use super::refusal::{Refusal, UNKNOWN};
use super::rules::{Form, Grammar, Tail};
use super::shell::{self, Commands};
use super::whitelist::Whitelist;
use super::word::{Edit, Edits, Word};

/// Whether a scan refuses what leads out of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judging {
    /// It does.
    Refuse,
    /// It only rewrites the paths that stand for the tree in another form; the kernel judges the rest.
    RewriteOnly,
}

/// Commands inside commands (`bash -c`, `$(…)`, `xargs`, `env`, `find -exec`) that are followed before giving up.
pub(crate) const NESTING_MAX: usize = 16;

/// Directories in which a script may name an allowed program by its absolute path.
const PROGRAM_DIRECTORIES: [&str; 3] = ["/bin/", "/usr/bin/", "/usr/local/bin/"];

/// One scan: the rules and the tree it holds the words against, and how deep inside other commands it is.
#[derive(Clone, Copy)]
pub(crate) struct Scan<'a> {
    whitelist: &'a Whitelist,
    anchors: &'a Anchors,
    judging: Judging,
    depth: usize,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(whitelist: &'a Whitelist, anchors: &'a Anchors, judging: Judging) -> Self {
        Self { whitelist, anchors, judging, depth: 0 }
    }

    /// Judges a word in command position and returns the name that its grammar goes by.
    fn program<'w>(&self, word: &'w Word, edits: &mut Edits) -> Result<&'w str, Refusal> {
        let text = word.text.as_str();
        if !text.contains('/') {
            return Ok(text);
        }
        let system = PROGRAM_DIRECTORIES.iter().find_map(|directory| text.strip_prefix(directory));
        if let Some(name) = system.filter(|name| !name.contains('/'))
            && self.anchors.aim(text) != Aim::Inside
        {
            if name.contains(UNKNOWN) || self.whitelist.permits(name) || self.judging == Judging::RewriteOnly
            {
                return Ok(name);
            }
            return Err(self.whitelist.not_allowed(text));
        }
        self.judge(Role::Path, word, 0, edits)?;
        Ok(text)
    }

    fn all(&self, role: Role, words: &[Word], edits: &mut Edits) -> Result<(), Refusal> {
        words.iter().try_for_each(|word| self.judge(role, word, 0, edits))
    }

    /// Judges the bytes of `word` from `start` on.
    fn judge(&self, role: Role, word: &Word, start: usize, edits: &mut Edits) -> Result<(), Refusal> {
        let text = word.text.get(start..).unwrap_or_default();
        let is_listing = word.is_pattern && text.starts_with('/') && matches!(role, Role::Words | Role::Soft);
        let mut found = Vec::new();
        match role {
            Role::Script => match shell::scan(text, self) {
                Ok(edits) => found = edits,
                // Only the running shell knows whether this script is whole.
                Err(Refusal::Invalid { .. }) if text.contains(UNKNOWN) => {}
                Err(refusal) => return Err(refusal.at(word.index)),
            },
            _ => match judge(if is_listing { Role::Path } else { role }, text, self.anchors, &mut found) {
                Err(rule) if self.judging == Judging::Refuse => {
                    return Err(Refusal::escape(&word.text, rule).at(word.index));
                }
                Ok(()) | Err(_) => {}
            },
        }
        edits.extend(found.into_iter().map(|edit| {
            let range = edit.range.start + start..edit.range.end + start;
            (word.index, Edit { range, ..edit })
        }));
        Ok(())
    }

    /// Reads options and operands.
    fn options(&self, grammar: &Grammar, words: &[Word], edits: &mut Edits) -> Result<(), Refusal> {
        let mut operands = Vec::new();
        let mut first_is_supplied = false;
        let mut options_ended = false;
        let mut rest = words;
        while let Some((word, after)) = rest.split_first() {
            let is_option = !options_ended && word.text.len() > 1 && word.text.starts_with('-');
            let is_complete = grammar.tail.is_some() && operands.len() == grammar.operands.len();
            if is_complete && (!is_option || !operands.is_empty()) {
                break;
            }
            rest = after;
            if word.text == "--" && is_option {
                options_ended = true;
            } else if is_option {
                let option = self.option(grammar, word, rest.first(), edits)?;
                if option.took_next {
                    rest = rest.get(1..).unwrap_or_default();
                }
                first_is_supplied |= grammar.supplies_first.contains(&option.name);
                if grammar.last.contains(&option.name) {
                    break;
                }
            } else {
                operands.push(word);
            }
        }
        let skipped = usize::from(first_is_supplied);
        for (index, word) in operands.into_iter().enumerate() {
            self.judge(grammar.operand(index + skipped), word, 0, edits)?;
        }
        match grammar.tail {
            Some(Tail::Command) if !rest.is_empty() => self.command(rest, edits),
            Some(Tail::Text) => self.all(Role::Text, rest, edits),
            _ => Ok(()),
        }
    }

    /// Reads one word of options, and the next word when the option takes it as its value.
    fn option(
        &self,
        grammar: &Grammar,
        word: &Word,
        next: Option<&Word>,
        edits: &mut Edits,
    ) -> Result<OptionRead, Refusal> {
        let text = word.text.as_str();
        let (name, value) = match text.split_once('=') {
            Some((name, _)) => (name, Some(name.len() + 1)),
            None => (text, None),
        };
        if let Some(role) = grammar.option(name).filter(|_| name.len() > 2) {
            return self.value(name, role, word, value, next, edits);
        }
        if name.starts_with("--") {
            if let Some(start) = value {
                self.judge(Role::Text, word, start, edits)?;
            }
            return Ok(OptionRead { name: name.to_owned(), took_next: false });
        }
        for (at, letter) in text.char_indices().skip(1) {
            let name = format!("-{letter}");
            let end = at + letter.len_utf8();
            if grammar.attached.contains(&name) {
                break;
            }
            if let Some(role) = grammar.option(&name) {
                let value = (end < text.len()).then_some(end);
                return self.value(&name, role, word, value, next, edits);
            }
            // An unknown option with its value attached: `-I/x`, `-o=/x`, `-I../x`, `-d@/x`.
            if matches!(letter, '/' | '.' | '@' | '=') {
                let start = if letter == '=' { end } else { at };
                self.judge(Role::Text, word, start, edits)?;
                break;
            }
        }
        Ok(OptionRead { name: text.to_owned(), took_next: false })
    }

    /// Judges an option's value: attached from byte `attached` on, else the next word.
    fn value(
        &self,
        name: &str,
        role: Role,
        word: &Word,
        attached: Option<usize>,
        next: Option<&Word>,
        edits: &mut Edits,
    ) -> Result<OptionRead, Refusal> {
        match (attached, next) {
            (Some(start), _) => self.judge(role, word, start, edits)?,
            (None, Some(next)) => self.judge(role, next, 0, edits)?,
            (None, None) => {}
        }
        Ok(OptionRead { name: name.to_owned(), took_next: attached.is_none() })
    }

    /// Reads the invocation of a shell: options with `-` or `+`, a script or its file, the script's arguments.
    fn shell(&self, grammar: &Grammar, words: &[Word], edits: &mut Edits) -> Result<(), Refusal> {
        let mut operand = Role::Path;
        let mut rest = words;
        while let Some((word, after)) = rest.split_first() {
            let text = word.text.as_str();
            if text.len() < 2 || !text.starts_with(['-', '+']) {
                break;
            }
            rest = after;
            if text == "--" {
                break;
            }
            if text.starts_with("--") {
                if self.option(grammar, word, rest.first(), edits)?.took_next {
                    rest = rest.get(1..).unwrap_or_default();
                }
                continue;
            }
            if text.contains('c') {
                operand = Role::Script;
            }
            // Each `o` or `O` of a cluster takes one of the next words (bash(1), OPTIONS).
            let names = text.chars().filter(|letter| matches!(letter, 'o' | 'O')).count();
            rest = rest.get(names..).unwrap_or_default();
        }
        let Some((script, arguments)) = rest.split_first() else { return Ok(()) };
        self.deeper()?.judge(operand, script, 0, edits)?;
        self.all(Role::Text, arguments, edits)
    }

    /// Reads starting points, then an expression with the commands in it.
    fn find(&self, grammar: &Grammar, words: &[Word], edits: &mut Edits) -> Result<(), Refusal> {
        let mut in_expression = false;
        let mut rest = words;
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            let text = word.text.as_str();
            in_expression |= (text.starts_with('-') && !matches!(text, "-" | "--" | "-H" | "-L" | "-P"))
                || matches!(text, "(" | ")" | "!" | ",");
            if !in_expression {
                self.judge(Role::Path, word, 0, edits)?;
            } else if grammar.commands.iter().any(|name| name == text) {
                let end =
                    rest.iter().position(|word| word.text == ";" || word.text == "+").unwrap_or(rest.len());
                let (command, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
                self.command(command, edits)?;
                rest = after;
            } else if let Some(role) = grammar.option(text) {
                if let Some((value, after)) = rest.split_first() {
                    self.judge(role, value, 0, edits)?;
                    rest = after;
                }
            } else {
                self.judge(Role::Text, word, 0, edits)?;
            }
        }
        Ok(())
    }
}

impl Commands for Scan<'_> {
    fn deeper(&self) -> Result<Self, Refusal> {
        if self.depth == NESTING_MAX {
            return Err(Refusal::invalid(format!(
                "commands are nested more than {NESTING_MAX} deep: write the inner ones to a script file and run that"
            )));
        }
        Ok(Self { depth: self.depth + 1, ..*self })
    }

    fn command(&self, words: &[Word], edits: &mut Edits) -> Result<(), Refusal> {
        let scan = self.deeper()?;
        let mut rest = words;
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            if value_of_assignment(&word.text).is_some() {
                scan.judge(Role::Soft, word, 0, edits)?;
                continue;
            }
            let name = scan.program(word, edits)?;
            return scan.arguments(name, rest, edits);
        }
        Ok(())
    }

    fn arguments(&self, name: &str, words: &[Word], edits: &mut Edits) -> Result<(), Refusal> {
        let Some(grammar) = self.whitelist.rules.grammar(name) else {
            return self.all(Role::Text, words, edits);
        };
        match grammar.form {
            Form::Operands => words
                .iter()
                .enumerate()
                .try_for_each(|(i, word)| self.judge(grammar.operand(i), word, 0, edits)),
            Form::Options => self.options(grammar, words, edits),
            Form::Shell => self.shell(grammar, words, edits),
            Form::Find => self.find(grammar, words, edits),
            // Several words are joined by blanks; read as one command they keep their quotes.
            Form::Eval => match words {
                [script] => self.deeper()?.judge(Role::Script, script, 0, edits),
                _ => self.command(words, edits),
            },
        }
    }
}

/// The outcome of reading an option.
struct OptionRead {
    /// The option by its name, without a value.
    name: String,
    /// The next word was its value.
    took_next: bool,
}
