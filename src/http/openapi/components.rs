//! [`Components`]: what operations refer to.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::shorthand::schema;

/// The components that operations refer to, as OpenAPI has them; schemas in the [shorthand](super::shorthand) until
/// they are written out.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Components {
    pub(super) schemas: Map<String, Value>,
    parameters: Map<String, Value>,
    headers: Map<String, Value>,
    pub(super) responses: Map<String, Value>,
    security_schemes: Map<String, Value>,
}

impl Components {
    /// Writes the shorthand out.
    pub(super) fn write_out(&mut self) {
        self.schemas.values_mut().for_each(|written| *written = schema(written));
        for element in self.parameters.values_mut().chain(self.headers.values_mut()) {
            if let Some(written) = element.get_mut("schema") {
                *written = schema(written);
            }
        }
    }
}

/// An answer with headers, each by its name in `components.yaml`; every answer has its id.
pub(super) fn answer<T: AsRef<str>>(description: &str, headers: impl IntoIterator<Item = T>) -> Value {
    let mut named = Map::new();
    named.insert("x-request-id".to_owned(), json!({ "$ref": "#/components/headers/x-request-id" }));
    for name in headers {
        let name = name.as_ref();
        named.insert(name.to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }));
    }
    json!({ "description": description, "headers": named })
}
