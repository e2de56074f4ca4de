//! Values of JSON that must be spelled one way.
//!
//! What serde derives for a struct takes a list of its fields in order as well, and for an enum of words an object with a
//! word and null. The promise says neither, and a list has no names that could be misspelt.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, Visitor};

/// A struct that is spelled as an object.
pub(in crate::http) struct Object<T>(pub(in crate::http) T);

/// An enum that is spelled as a word.
#[derive(Clone, Copy, Default)]
pub(in crate::http) struct Word<T>(pub(in crate::http) T);

struct Expected<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Expected<Object<T>> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Expected<Word<T>> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        let word: StrDeserializer<'_, E> = word.into_deserializer();
        T::deserialize(word)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Expected::<Self>("an object", PhantomData)).map(Self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Expected::<Self>("a word", PhantomData)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Point {
        x: u8,
        #[serde(default)]
        y: u8,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Order {
        Go { x: u8 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Side {
        Ours,
    }

    #[test]
    fn only_an_object_is_an_object_and_only_a_word_a_word() {
        let point = |text| serde_json::from_str::<Object<Point>>(text).map(|object| object.0);
        assert_eq!(point("{\"x\": 1}").unwrap(), Point { x: 1, y: 0 });
        for wrong in ["[1]", "[1, 2]", "\"x\"", "null", "1", "{}", "{\"x\": 1, \"z\": 1}"] {
            assert!(point(wrong).is_err(), "{wrong}");
        }
        let order = |text| serde_json::from_str::<Object<Order>>(text).map(|object| object.0);
        assert_eq!(order("{\"type\": \"go\", \"x\": 1}").unwrap(), Order::Go { x: 1 });
        assert!(order("[\"go\", 1]").is_err());
        let side = |text| serde_json::from_str::<Word<Side>>(text).map(|word| word.0);
        assert_eq!(side("\"ours\"").unwrap(), Side::Ours);
        for wrong in ["{\"ours\": null}", "\"theirs\"", "[\"ours\"]", "0"] {
            assert!(side(wrong).is_err(), "{wrong}");
        }
    }
}
