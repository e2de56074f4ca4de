//! The commands, words and redirections of a shell script.
//!
//! Reads enough of the shell's grammar (POSIX.1-2024, Shell Command Language, chapter 2; bash(1)) to tell words
//! from operators and data from paths: quotes, substitutions, here-documents, compound commands. It runs in one
//! pass over the bytes of the script and recurses only as deep as [`Commands::deeper`] lets it.

mod lexer;
mod words;

use super::argument::value_of_assignment;
use super::refusal::Refusal;
use super::word::{Edit, Edits, Word};
use lexer::Lexer;

/// Words after which a command begins anew.
const COMMAND_FOLLOWS: [&str; 14] =
    ["if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "!", "time", "coproc"];

/// The end of a list of commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Script,
    Parenthesis,
    Backtick,
}

/// Where inside a `case` command the reader is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// Between `case` and `in`.
    Subject,
    /// Before the `)` that ends the patterns.
    Patterns,
    /// In the commands that belong to the patterns.
    Commands,
}

/// Judges the commands that are found in a script.
pub(super) trait Commands: Sized {
    /// The same one command deeper.
    ///
    /// # Errors
    /// [`Refusal::Invalid`]: commands are nested too deep.
    fn deeper(&self) -> Result<Self, Refusal>;

    /// Reads a command whose program is among its words, after any `NAME=value`.
    ///
    /// # Errors
    /// As [`scan`].
    fn command(&self, words: &[Word], edits: &mut Edits) -> Result<(), Refusal>;

    /// Reads the arguments of the program `name`.
    ///
    /// # Errors
    /// As [`scan`].
    fn arguments(&self, name: &str, words: &[Word], edits: &mut Edits) -> Result<(), Refusal>;
}

/// Scans `script` and returns the rewriting it needs.
///
/// # Errors
/// * [`Refusal::PathEscape`]: a word that is a path points outside the tree.
/// * [`Refusal::CommandNotAllowed`]: a system program is named that is on no list.
/// * [`Refusal::Invalid`]: a quote or substitution never ends, or too many are nested.
pub(crate) fn scan(script: &str, scan: &impl Commands) -> Result<Vec<Edit>, Refusal> {
    let mut shell = Shell { lexer: Lexer::new(script), edits: Vec::new(), in_backticks: false };
    shell.list(End::Script, scan)?;
    Ok(shell.edits)
}

struct Shell<'s> {
    lexer: Lexer<'s>,
    /// Rewritings found so far, in bytes of the script.
    edits: Vec<Edit>,
    /// Inside `` `…` ``, where the next bare backtick ends the substitution.
    in_backticks: bool,
}

impl Shell<'_> {
    /// Reads commands up to `end`, which is consumed.
    fn list(&mut self, end: End, scan: &impl Commands) -> Result<(), Refusal> {
        let scan = &scan.deeper()?;
        let started = self.lexer.position();
        let mut words = Vec::new();
        let mut open = 0_usize;
        let mut cases: Vec<Case> = Vec::new();
        loop {
            self.lexer.skip_blanks();
            let in_patterns = cases.last() == Some(&Case::Patterns);
            let Some(next) = self.lexer.peek() else {
                self.finish(&mut words, scan)?;
                if end == End::Script {
                    return Ok(());
                }
                return Err(unterminated("command substitution", started));
            };
            match next {
                b'\n' => {
                    self.finish(&mut words, scan)?;
                    self.lexer.advance(1);
                    self.lexer.skip_here_documents();
                }
                b'#' => self.lexer.skip_line(),
                b'`' if end == End::Backtick => {
                    self.lexer.advance(1);
                    return self.finish(&mut words, scan);
                }
                b')' => {
                    self.lexer.advance(1);
                    if let Some(case) = cases.last_mut().filter(|case| **case == Case::Patterns) {
                        *case = Case::Commands;
                        words.clear();
                        continue;
                    }
                    self.finish(&mut words, scan)?;
                    if open == 0 && end == End::Parenthesis {
                        return Ok(());
                    }
                    open = open.saturating_sub(1);
                }
                b'(' if in_patterns => self.lexer.advance(1),
                b'(' => {
                    let is_loop = words.first().is_some_and(|word: &Word| word.text == "for");
                    if (words.is_empty() || is_loop) && self.lexer.skip_arithmetic() {
                        continue;
                    }
                    self.finish(&mut words, scan)?;
                    self.lexer.advance(1);
                    open += 1;
                }
                b'|' if in_patterns => self.lexer.advance(1),
                b';' => {
                    self.finish(&mut words, scan)?;
                    let ends_case = self.lexer.starts_with(";;") || self.lexer.starts_with(";&");
                    self.lexer.skip_any(b";&");
                    if let Some(case) = cases.last_mut().filter(|case| ends_case && **case == Case::Commands)
                    {
                        *case = Case::Patterns;
                    }
                }
                b'&' if self.lexer.starts_with("&>") => self.redirection(scan)?,
                b'&' | b'|' => {
                    self.finish(&mut words, scan)?;
                    self.lexer.advance(1);
                }
                b'<' | b'>' if !self.lexer.starts_with("<(") && !self.lexer.starts_with(">(") => {
                    self.redirection(scan)?;
                }
                _ => {
                    let word = self.word(scan)?;
                    let is_reserved_place = words.is_empty() && !word.is_quoted;
                    match (cases.last_mut(), word.text.as_str()) {
                        (Some(case @ Case::Subject), "in") if !word.is_quoted => *case = Case::Patterns,
                        (Some(Case::Subject), _) => {}
                        (Some(Case::Patterns | Case::Commands), "esac") if is_reserved_place => {
                            cases.pop();
                        }
                        (Some(Case::Patterns), _) => {}
                        (_, "case") if is_reserved_place => cases.push(Case::Subject),
                        (_, "[[") if is_reserved_place => self.conditional(scan)?,
                        (_, text) if is_reserved_place && COMMAND_FOLLOWS.contains(&text) => {}
                        _ => self.take(word, &mut words, scan)?,
                    }
                }
            }
        }
    }

    /// Adds a word to the command that is being read.
    fn take(&mut self, word: Word, words: &mut Vec<Word>, scan: &impl Commands) -> Result<(), Refusal> {
        let next = self.lexer.peek();
        let is_descriptor = !word.is_quoted && word.text.bytes().all(|byte| byte.is_ascii_digit());
        if is_descriptor && matches!(next, Some(b'<' | b'>')) {
            return Ok(());
        }
        let is_array = next == Some(b'(') && value_of_assignment(&word.text) == Some(word.text.len());
        words.push(Word { index: words.len(), ..word });
        if is_array {
            let values = self.words_until(b')', scan)?;
            self.run("for", values, scan)?;
        }
        Ok(())
    }

    /// Reads words up to the byte `end`, over line ends; the byte before them and `end` are consumed.
    fn words_until(&mut self, end: u8, scan: &impl Commands) -> Result<Vec<Word>, Refusal> {
        let started = self.lexer.position();
        let mut words = Vec::new();
        self.lexer.advance(1);
        loop {
            self.lexer.skip_blanks();
            match self.lexer.peek() {
                None => return Err(unterminated("parenthesis", started)),
                Some(next) if next == end => {
                    self.lexer.advance(1);
                    return Ok(words);
                }
                Some(b'#') => self.lexer.skip_line(),
                Some(b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>') => self.lexer.advance(1),
                Some(_) => {
                    let word = self.word(scan)?;
                    words.push(Word { index: words.len(), ..word });
                }
            }
        }
    }

    /// Reads the rest of `[[ … ]]`, whose operators are not the shell's.
    fn conditional(&mut self, scan: &impl Commands) -> Result<(), Refusal> {
        let started = self.lexer.position();
        let mut words = Vec::new();
        loop {
            self.lexer.skip_blanks();
            match self.lexer.peek() {
                None => return Err(unterminated("`[[`", started)),
                Some(b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>') => self.lexer.advance(1),
                Some(_) => {
                    let word = self.word(scan)?;
                    if word.text == "]]" && !word.is_quoted {
                        return self.run("[[", words, scan);
                    }
                    // Patterns are matched here, never expanded to names of files.
                    words.push(Word { index: words.len(), is_pattern: false, ..word });
                }
            }
        }
    }

    /// Judges the command read so far and forgets it.
    fn finish(&mut self, words: &mut Vec<Word>, scan: &impl Commands) -> Result<(), Refusal> {
        let words = std::mem::take(words);
        let mut edits = Edits::new();
        scan.command(&words, &mut edits)?;
        self.trace(&words, edits);
        Ok(())
    }

    /// Judges `words` as the arguments of `name`.
    fn run(&mut self, name: &str, words: Vec<Word>, scan: &impl Commands) -> Result<(), Refusal> {
        let mut edits = Edits::new();
        scan.arguments(name, &words, &mut edits)?;
        self.trace(&words, edits);
        Ok(())
    }

    fn trace(&mut self, words: &[Word], edits: Edits) {
        for (index, edit) in edits {
            if let Some(word) = words.get(index) {
                word.trace(&edit, &mut self.edits);
            }
        }
    }

    /// Reads a redirection and judges its target.
    fn redirection(&mut self, scan: &impl Commands) -> Result<(), Refusal> {
        let operator = self.lexer.redirection();
        self.lexer.skip_blanks();
        let word = self.word(scan)?;
        match operator {
            "<<" | "<<-" => {
                self.lexer.expect_here_document(word.text, operator == "<<-");
                Ok(())
            }
            "<<<" => self.run("echo", vec![word], scan),
            _ => self.run("cat", vec![Word::argument(0, "--"), Word { index: 1, ..word }], scan),
        }
    }
}

fn unterminated(what: &str, position: usize) -> Refusal {
    Refusal::invalid(format!(
        "the script has a {what} at byte {position} that never ends: close it, or send the script as a file"
    ))
}
