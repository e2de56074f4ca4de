//! Lists and maps in JSON bodies that stop at a number of elements.
//!
//! An empty text takes three bytes on the way and 24 in memory, so a bound on the body alone lets it grow eightfold.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use storage::runs::RUN_SKILLS_MAX;

/// Arguments, and variables, of one run: more than any argument list within its limit in bytes has.
const ELEMENTS_MAX: usize = 128 * 1024;

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = Vec<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at most {ELEMENTS_MAX} texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            if texts.len() >= ELEMENTS_MAX {
                return Err(A::Error::invalid_length(texts.len() + 1, &self));
            }
            texts.push(text);
        }
        Ok(texts)
    }
}

struct NamedTexts;

impl<'de> Visitor<'de> for NamedTexts {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an object of at most {ELEMENTS_MAX} texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some((name, text)) = map.next_entry()? {
            if texts.len() >= ELEMENTS_MAX {
                return Err(A::Error::invalid_length(texts.len() + 1, &self));
            }
            texts.insert(name, text);
        }
        Ok(texts)
    }
}

/// The skills that a run asks for, as they are spelled.
pub(in crate::http) enum Skills {
    /// One word, which ought to be `all`.
    Word(String),
    /// At most [`RUN_SKILLS_MAX`] ids.
    List(Vec<String>),
}

struct SkillIds;

impl<'de> Visitor<'de> for SkillIds {
    type Value = Skills;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at most {RUN_SKILLS_MAX} skill ids, or \"all\"")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
        Ok(Skills::Word(word.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            if texts.len() >= RUN_SKILLS_MAX {
                return Err(A::Error::invalid_length(texts.len() + 1, &self));
            }
            texts.push(text);
        }
        Ok(Skills::List(texts))
    }
}

impl<'de> Deserialize<'de> for Skills {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SkillIds)
    }
}

/// At most `N` elements.
struct AtMost<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for AtMost<T, N> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at most {N} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            if elements.len() >= N {
                return Err(A::Error::invalid_length(elements.len() + 1, &self));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

/// At most `N` entries.
struct EntriesAtMost<V, const N: usize>(PhantomData<V>);

impl<'de, V: Deserialize<'de>, const N: usize> Visitor<'de> for EntriesAtMost<V, N> {
    type Value = BTreeMap<String, V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an object of at most {N} entries")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            if entries.len() >= N {
                return Err(A::Error::invalid_length(entries.len() + 1, &self));
            }
            entries.insert(name, value);
        }
        Ok(entries)
    }
}

/// Reads a list of at most `N` elements.
pub(in crate::http) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(AtMost::<T, N>(PhantomData))
}

/// Reads an object of at most `N` entries.
pub(in crate::http) fn entries<'de, D: Deserializer<'de>, V: Deserialize<'de>, const N: usize>(
    from: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    from.deserialize_map(EntriesAtMost::<V, N>(PhantomData))
}

/// Reads a list of texts.
pub(in crate::http) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(Texts)
}

/// Reads an object whose values are texts.
pub(in crate::http) fn named_texts<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_map(NamedTexts)
}
