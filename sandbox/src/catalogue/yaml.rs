//! YAML that takes no more memory than its text: an alias stands for a copy, and copies of copies for more than there is.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_yaml_ng::{Mapping, Value};

/// The longest text that is read as YAML, in bytes: brackets in brackets take time by the square of its length.
const BYTES_MAX: usize = 16 * 1024;

/// The mapping that `text` is in YAML; none when it is anything else, too long, or far more than it looks.
pub(super) fn mapping(text: &str) -> Option<Value> {
    if text.len() > BYTES_MAX {
        return None;
    }
    // Without aliases, values and their bytes are at most as many as the bytes of the text.
    let left = Cell::new(4 * text.len());
    let value = Bounded(&left).deserialize(serde_yaml_ng::Deserializer::from_str(text)).ok()?;
    value.is_mapping().then_some(value)
}

/// A value that takes what is left, and no more.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a Cell<usize>);

impl Bounded<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(1 + bytes);
        self.0.set(left.ok_or_else(|| E::custom("aliases stand for too much"))?);
        Ok(())
    }

    fn scalar<E: Error>(self, value: impl Into<Value>) -> Result<Value, E> {
        self.take(0).map(|()| value.into())
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("YAML without tags")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.take(value.len()).map(|()| value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.scalar(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut sequence = Vec::new();
        while let Some(entry) = entries.next_element_seed(self)? {
            sequence.push(entry);
        }
        Ok(Value::Sequence(sequence))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut mapping = Mapping::new();
        while let Some((key, value)) = entries.next_entry_seed(self, self)? {
            if mapping.insert(key, value).is_some() {
                return Err(A::Error::custom("a key is there twice"));
            }
        }
        Ok(Value::Mapping(mapping))
    }
}
