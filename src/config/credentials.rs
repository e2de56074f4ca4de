//! Where tokens and keys come from: the configuration, a file of tokens, a file of keys, and the environment.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::tokens::TokenEntry;
use super::{Config, ConfigError, read_text};
use crate::access::signed::Keys;
use crate::access::{Credentials, Sources, Token};

/// Where the key of signed tokens is when the configuration names no other, below the data directory.
pub const SIGNING_KEY: &str = ".filesecbox/keys/signing";

/// Names every place that tokens and keys are read from, to read them once or again.
#[derive(Clone, Debug)]
pub struct CredentialSources {
    config: Option<PathBuf>,
    /// The tokens of a configuration that is no file.
    inline: Vec<TokenEntry>,
    tokens: Option<PathBuf>,
    keys: PathBuf,
    /// The admin token of the environment or the command line.
    admin: Option<Token>,
    admin_file: Option<PathBuf>,
}

/// A file of tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    tokens: Vec<TokenEntry>,
}

impl CredentialSources {
    /// The sources that `config` names, which was read from the file `path`, and an admin token in the clear, given
    /// or in a file.
    ///
    /// # Errors
    /// [`ConfigError::Unsendable`].
    pub fn new(
        config: &Config,
        path: Option<&Path>,
        admin: Option<&str>,
        admin_file: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let configured = |path: &Path| (!path.as_os_str().is_empty()).then(|| path.to_owned());
        Ok(Self {
            config: path.map(Path::to_owned),
            inline: config.tokens.clone(),
            tokens: configured(&config.access.tokens_file),
            keys: configured(&config.access.key_file).unwrap_or_else(|| config.root.join(SIGNING_KEY)),
            admin: admin.map(Config::admin_token).transpose()?,
            admin_file: admin_file.map(Path::to_owned),
        })
    }

    /// The file of keys.
    #[must_use]
    pub fn key_file(&self) -> &Path {
        &self.keys
    }

    /// Reads the static tokens.
    ///
    /// # Errors
    /// [`ConfigError::Read`], [`ConfigError::Parse`], [`ConfigError::Token`], [`ConfigError::TokenFile`],
    /// [`ConfigError::Unsendable`].
    pub fn tokens(&self) -> Result<Vec<Token>, ConfigError> {
        let mut entries = match &self.config {
            Some(path) => Config::read(Some(path), std::iter::empty())?.tokens,
            None => self.inline.clone(),
        };
        if let Some(path) = &self.tokens {
            let file: TokenFile = toml::from_str(&read_text(path)?).map_err(|source| {
                ConfigError::TokenFile { path: path.display().to_string(), source: Box::new(source) }
            })?;
            entries.extend(file.tokens);
        }
        let mut tokens = parsed(&entries)?;
        tokens.extend(self.admin.clone());
        if let Some(path) = &self.admin_file {
            // An editor ends the last line; a token has no space anyway.
            tokens.push(Config::admin_token(read_text(path)?.trim_end())?);
        }
        Ok(tokens)
    }

    /// Reads tokens and keys.
    ///
    /// # Errors
    /// As [`CredentialSources::tokens`]; [`ConfigError::Key`].
    pub fn read(&self) -> Result<Credentials, ConfigError> {
        Ok(Credentials { tokens: self.tokens()?, keys: Keys::read(&self.keys)? })
    }

    /// The sources that a running service looks at.
    #[must_use]
    pub fn watched(self) -> Sources {
        let others = [&self.config, &self.tokens, &self.admin_file].into_iter().flatten().cloned();
        let files = others.chain([self.keys.clone()]).collect();
        Sources { files, read: Box::new(move || self.read().map_err(|error| chain(&error))) }
    }
}

/// The tokens of a list, of which a wrong one is told by its number.
pub(super) fn parsed(entries: &[TokenEntry]) -> Result<Vec<Token>, ConfigError> {
    let parsed = entries
        .iter()
        .zip(1..)
        .map(|(entry, number)| entry.parse().map_err(|problem| ConfigError::Token { number, problem }));
    parsed.collect()
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
