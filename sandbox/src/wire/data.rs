//! [`Data`]: bytes that are base64 on the wire (RFC 4648, the usual alphabet, padded).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that are base64 on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data(pub Bytes);

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Base64;
        impl Visitor<'_> for Base64 {
            type Value = Data;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("base64")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Data, E> {
                STANDARD.decode(text).map(|bytes| Data(bytes.into())).map_err(|_| E::custom("invalid base64"))
            }
        }
        deserializer.deserialize_str(Base64)
    }
}
