//! Lists and maps in JSON bodies that stop at a number of elements.
//!
//! An empty text takes three bytes on the way and 24 in memory, so a bound on the body alone lets it grow eightfold.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

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

/// Reads a list of texts.
pub(super) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(Texts)
}

/// Reads an object whose values are texts.
pub(super) fn named_texts<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_map(NamedTexts)
}
