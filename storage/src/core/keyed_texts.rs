//! [`KeyedTexts`]: texts under keys, one proven record a key, for the next start: policies of agents, runners of users, devboxes,
//! share links, revocations of tokens.
//!
//! The store keeps texts and does not read them. A record has another name each time, made of the key and a number; the one with
//! the highest number counts, so that a crash between a new record and the removal of the one before leaves one of both. Records
//! are proven as those of changes are ([`Records`]).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::layers::record::{Proof, Records};

/// Longest text, in bytes.
const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Digits of the name of a record that stand for the key.
const KEY_DIGITS: usize = 32;

/// Texts under keys.
pub(crate) struct KeyedTexts {
    records: Mutex<Records>,
    /// What a text is, for errors and logs, such as `the policy of an agent`.
    what: &'static str,
    /// Keys that may have a text at once.
    keys_max: usize,
}

/// The texts that were read at a start.
#[derive(Debug, Default)]
pub(crate) struct KeptTexts {
    /// The text of each key.
    pub(crate) texts: HashMap<String, String>,
    /// Files among the records that nothing proves to be the service's own; they are kept aside.
    pub(crate) refused: usize,
}

impl KeyedTexts {
    pub(crate) fn new(records: Records, what: &'static str, keys_max: usize) -> Self {
        Self { records: Mutex::new(records), what, keys_max }
    }

    /// Reads all texts.
    ///
    /// # Errors
    /// [`Error::TooManyEntries`], [`Error::Io`].
    pub(crate) fn read(&self) -> Result<KeptTexts> {
        let records = self.records.lock();
        let mut read = KeptTexts::default();
        let mut newest: HashMap<String, (u64, OsString)> = HashMap::new();
        for name in records.names()? {
            let text = match records.read(&name)? {
                Proof::Genuine(text) => text,
                Proof::Draft => {
                    records.remove(&name)?;
                    continue;
                }
                Proof::Refused(reason) => {
                    tracing::warn!(
                        reason,
                        what = self.what,
                        "a file among the kept texts is not the service's: it is kept aside"
                    );
                    records.refuse(&name)?;
                    read.refused += 1;
                    continue;
                }
            };
            let text = String::from_utf8(text).ok();
            let parsed = text.as_deref().and_then(|text| text.split_once('\n'));
            let Some(((key, text), number)) = parsed.zip(number_of(&name)) else { continue };
            let older = match newest.get(key) {
                Some((known, _)) if *known > number => Some(name),
                _ => {
                    read.texts.insert(key.to_owned(), text.to_owned());
                    newest.insert(key.to_owned(), (number, name)).map(|(_, older)| older)
                }
            };
            if let Some(older) = older {
                records.remove(&older)?;
            }
        }
        Ok(read)
    }

    /// Keeps the text of a key, which is one line, or forgets it. After this it is on the disk.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::TooManyEntries`] when too many keys have one; [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn keep(&self, key: &str, text: Option<&str>) -> Result<()> {
        let records = self.records.lock();
        let of_key = digits_of(key);
        let names = records.names()?;
        let is_its = |name: &&OsString| name.to_str().is_some_and(|name| name.starts_with(&of_key));
        let former: Vec<&OsString> = names.iter().filter(is_its).collect();
        if let Some(text) = text {
            if text.len() > TEXT_BYTES_MAX {
                return Err(Error::TooLarge { what: self.what.to_owned(), limit: TEXT_BYTES_MAX as u64 });
            }
            if former.is_empty() && names.len() >= self.keys_max {
                return Err(Error::TooManyEntries(self.keys_max));
            }
            let number = former.iter().filter_map(|name| number_of(name)).max().map_or(0, |last| last + 1);
            let name = OsString::from(format!("{of_key}-{number:016x}"));
            let sync = |file: &std::fs::File| {
                file.sync_all().map_err(|error| Error::from_io("fsync", "record", error))
            };
            records.write(&name, format!("{key}\n{text}").as_bytes(), true, sync)?;
        }
        for name in former {
            records.remove(name)?;
        }
        records.settle()
    }
}

/// The part of a name that stands for the key: an id can end as drafts do, and can be longer than names are.
fn digits_of(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex().chars().take(KEY_DIGITS).collect()
}

fn number_of(name: &OsStr) -> Option<u64> {
    u64::from_str_radix(name.to_str()?.split_once('-')?.1, 16).ok()
}
