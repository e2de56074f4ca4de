//! The promise that every answer is held against: the OpenAPI document, read more strictly than it asks for.
//!
//! A caller must bear fields that a later version adds. Here a field that the document does not name is a failure, so
//! that the document names them all.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::{Registry, Validator};
use serde_json::{Value, json};

/// The name of the document in references.
const NAME: &str = "urn:promise";

/// What is said of all that is left out where another backend answers.
const ABSENT_REMOTELY: &str = "of a workspace that is elsewhere";

/// Whether some workspaces are elsewhere, which two suites are about. In all others nothing is left out for that.
const SOME_ARE_REMOTE: bool =
    is_same(env!("CARGO_CRATE_NAME"), "remote") || is_same(env!("CARGO_CRATE_NAME"), "runners");

/// The document with what is worked out of it.
pub(crate) struct Promise {
    pub(crate) document: Value,
    registry: Registry<'static>,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// The promise of this version.
pub(crate) static PROMISE: LazyLock<Promise> =
    LazyLock::new(|| Promise::of(filesecbox::http::openapi::build().unwrap()));

impl Promise {
    fn of(document: Value) -> Self {
        let mut closed = document.clone();
        close(&mut closed);
        if !SOME_ARE_REMOTE {
            assert!(require(&mut closed) >= 8, "too little is left out elsewhere only");
        }
        let registry = Registry::new().add(NAME, closed).unwrap().prepare().unwrap();
        Self { document, registry, validators: Mutex::default() }
    }

    /// The faults of a value by the schema at `pointer` in the document.
    pub(crate) fn complaints(&self, pointer: &str, value: &Value) -> Vec<String> {
        let validator = {
            let mut validators = self.validators.lock().unwrap();
            let build = || {
                let schema = json!({ "$ref": format!("{NAME}#{}", in_uri(pointer)) });
                let options =
                    jsonschema::options().with_registry(&self.registry).should_validate_formats(true);
                Arc::new(options.build(&schema).unwrap_or_else(|error| panic!("{pointer}: {error}")))
            };
            Arc::clone(validators.entry(pointer.to_owned()).or_insert_with(build))
        };
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }
}

/// A pointer as the fragment of a URI, which has no braces.
fn in_uri(pointer: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/~-._".contains(byte);
    let one = |byte: u8| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    pointer.bytes().map(one).collect()
}

/// Allows no field that is not named.
fn close(value: &mut Value) {
    match value {
        Value::Object(keywords) => {
            if keywords.get("properties").is_some_and(Value::is_object) && keywords.contains_key("type") {
                keywords.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            keywords.values_mut().for_each(close);
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

/// Requires every field that may be absent elsewhere only. Tells how many there are.
fn require(value: &mut Value) -> usize {
    match value {
        Value::Object(keywords) => {
            let of_here = |(name, schema): (&String, &Value)| is_for_here(schema).then(|| json!(name));
            let fields = keywords.get("properties").and_then(Value::as_object);
            let required: Vec<Value> = fields.into_iter().flatten().filter_map(of_here).collect();
            let found = required.len();
            if found > 0 {
                let names = keywords.entry("required").or_insert_with(|| json!([]));
                names.as_array_mut().unwrap().extend(required);
            }
            found + keywords.values_mut().map(require).sum::<usize>()
        }
        Value::Array(list) => list.iter_mut().map(require).sum(),
        _ => 0,
    }
}

/// Whether what is declared is never absent in this suite, for the only reason is that a workspace is elsewhere.
pub(crate) fn is_for_here(declared: &Value) -> bool {
    let is_said = |text: &str| text.contains("Absent") && text.contains(ABSENT_REMOTELY);
    !SOME_ARE_REMOTE && declared["description"].as_str().is_some_and(is_said)
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}
