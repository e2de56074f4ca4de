//! [`front_matter`](self): the YAML head of a Markdown file, read in bounded time and memory.
//!
//! Skills and agents are described by such a head, and users write them. The service and the agent's side read it here,
//! so that both see the same, and a head that stands for far more than its text costs neither of them anything.
//!
//! | Bound | Because |
//! | --- | --- |
//! | [`BYTES_MAX`] of text | the parser keeps an event for each token |
//! | [`BRACKETS_MAX`] opening brackets | the parser looks at every open bracket again for every token |
//! | [`DEPTH_MAX`] levels | values are read, compared and dropped by recursion |
//! | [`NODES_MAX`] values, [`SCALAR_BYTES_MAX`] of text in them | an alias stands for a copy, and aliases of aliases multiply |
//!
//! A copy is counted before it is made. Tags (`!name`) are passed over, and `<<` is a key like any other.

mod head;
mod lines;

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_yaml_ng::{Mapping, Value};

pub use head::{Head, head};
pub use lines::{by_line, field, property, scalar};

/// The longest head that is read as YAML, in bytes.
pub const BYTES_MAX: usize = 16 * 1024;
/// Opening brackets and braces in a head, in strings and comments too.
pub const BRACKETS_MAX: usize = 512;
/// Levels of values in values; the head itself is the first.
pub const DEPTH_MAX: usize = 32;
/// Values of a head, keys and copies made by aliases included.
pub const NODES_MAX: usize = 4096;
/// Text of all those values together, in bytes.
pub const SCALAR_BYTES_MAX: usize = 4 * BYTES_MAX;

/// Why a head is not read as YAML. As text, what follows the name of the head in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It has more than [`BYTES_MAX`].
    #[error("has more than {BYTES_MAX} bytes: shorten it")]
    TooLong,
    /// It has more than [`BRACKETS_MAX`], [`DEPTH_MAX`], [`NODES_MAX`] or [`SCALAR_BYTES_MAX`].
    #[error("has more brackets, levels, fields or aliases than are read: make it simpler")]
    TooMuch,
    /// It is YAML, and not a mapping.
    #[error("has no fields in YAML")]
    NoFields,
    /// It is no YAML.
    #[error("is not YAML{}", .line.map_or(String::new(), |line| format!(", line {line}")))]
    NotYaml {
        /// The line of the file, whose first is `---`; `None` when the parser does not say.
        line: Option<usize>,
    },
}

/// Divides a text that begins with a line `---` into the head and the body, which a line `---` or `...` separates.
///
/// `None` when the text does not begin so, or the head does not end.
#[must_use]
pub fn split(text: &str) -> Option<(&str, &str)> {
    let rest = opened(text)?;
    let mut bytes = 0;
    for line in rest.split_inclusive('\n') {
        if matches!(line.trim_end(), "---" | "...") {
            return Some((rest.get(..bytes)?, rest.get(bytes + line.len()..)?));
        }
        bytes += line.len();
    }
    None
}

/// The text after the line `---` that it begins with; `None` when it begins otherwise.
#[must_use]
pub fn opened(text: &str) -> Option<&str> {
    let first = text.split_inclusive('\n').next().filter(|line| line.trim_end() == "---")?;
    text.get(first.len()..)
}

/// Reads a head as YAML.
///
/// # Errors
/// [`Unread`], which names the bound.
pub fn fields(head: &str) -> Result<Mapping, Unread> {
    if head.len() > BYTES_MAX {
        return Err(Unread::TooLong);
    }
    if head.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > BRACKETS_MAX {
        return Err(Unread::TooMuch);
    }
    let budget = Budget { nodes: Cell::new(NODES_MAX), bytes: Cell::new(SCALAR_BYTES_MAX) };
    let seed = Bounded { budget: &budget, levels: DEPTH_MAX };
    match seed.deserialize(serde_yaml_ng::Deserializer::from_str(head)) {
        Ok(Value::Mapping(fields)) => Ok(fields),
        Ok(_) => Err(Unread::NoFields),
        Err(_) if budget.is_spent() => Err(Unread::TooMuch),
        Err(error) => Err(Unread::NotYaml { line: error.location().map(|at| at.line() + 1) }),
    }
}

/// The budget that is left for reading.
struct Budget {
    nodes: Cell<usize>,
    bytes: Cell<usize>,
}

impl Budget {
    /// Takes `amount` of `from`; a budget that does not suffice is spent.
    fn take<E: Error>(from: &Cell<usize>, amount: usize) -> Result<(), E> {
        let left = from.get().checked_sub(amount);
        from.set(left.unwrap_or(0));
        left.map(drop).ok_or_else(|| E::custom("more than is read"))
    }

    fn spend<E: Error>(&self) -> E {
        self.nodes.set(0);
        E::custom("more than is read")
    }

    fn is_spent(&self) -> bool {
        self.nodes.get() == 0 || self.bytes.get() == 0
    }
}

/// Reads one value of what is left, `levels` deep.
#[derive(Clone, Copy)]
struct Bounded<'budget> {
    budget: &'budget Budget,
    levels: usize,
}

impl Bounded<'_> {
    fn node<E: Error>(self) -> Result<(), E> {
        Budget::take(&self.budget.nodes, 1)
    }

    fn scalar<E: Error>(self, value: impl Into<Value>) -> Result<Value, E> {
        self.node().map(|()| value.into())
    }

    /// The reader of the values inside this one.
    fn below<E: Error>(self) -> Result<Self, E> {
        self.node()?;
        let levels = self.levels.checked_sub(1).ok_or_else(|| self.budget.spend::<E>())?;
        Ok(Self { levels, ..self })
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
        formatter.write_str("YAML")
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
        Budget::take(&self.budget.bytes, value.len())?;
        self.scalar(value)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.scalar(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut sequence = Vec::new();
        while let Some(entry) = entries.next_element_seed(below)? {
            sequence.push(entry);
        }
        Ok(Value::Sequence(sequence))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut mapping = Mapping::new();
        while let Some((key, value)) = entries.next_entry_seed(below, below)? {
            if mapping.insert(key, value).is_some() {
                return Err(A::Error::custom("a key is there twice"));
            }
        }
        Ok(Value::Mapping(mapping))
    }

    /// A value with a tag.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let (_tag, contents) = tagged.variant_seed(below)?;
        contents.newtype_variant_seed(below)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counts what a value is made of: values, bytes of text, levels.
    fn size(value: &Value) -> (usize, usize, usize) {
        let sum = |parts: &mut dyn Iterator<Item = &Value>| {
            parts
                .map(size)
                .fold((1, 0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1, usize::max(sum.2, part.2)))
        };
        let (nodes, bytes, levels) = match value {
            Value::String(text) => (1, text.len(), 0),
            Value::Sequence(entries) => sum(&mut entries.iter()),
            Value::Mapping(entries) => sum(&mut entries.iter().flat_map(|(key, value)| [key, value])),
            Value::Tagged(_) | Value::Null | Value::Bool(_) | Value::Number(_) => (1, 0, 0),
        };
        (nodes, bytes, levels + 1)
    }

    #[track_caller]
    fn assert_bounded(read: Mapping) {
        let (nodes, bytes, levels) = size(&Value::Mapping(read));
        assert!(nodes <= NODES_MAX && bytes <= SCALAR_BYTES_MAX && levels <= DEPTH_MAX + 1);
    }

    #[test]
    fn an_ordinary_head_is_read_whole() {
        let head = "name: 写作\ndescription: >-\n  a\n  b\ntags: [x, y]\nbase: &base {a: 1}\nmore: *base\n\
                    tagged: !text {k: !!str 7}\n<<: *base\n";
        let read = fields(head).unwrap();
        let text = |key: &str| read.get(key).and_then(Value::as_str).map(str::to_owned);
        assert_eq!((text("name"), text("description")), (Some("写作".into()), Some("a b".into())));
        assert_eq!(read.get("more"), read.get("base"));
        assert_eq!(read.get("tagged").unwrap().get("k"), Some(&Value::from("7")));
        assert_eq!(read.len(), 7);
    }

    #[test]
    fn heads_that_stand_for_more_than_their_text_are_refused() {
        let laughs = |copies: usize, level: &str| {
            let mut bomb = format!("a0: &a0 {level}\n");
            for step in 1..30 {
                let copied = vec![format!("*a{}", step - 1); copies].join(",");
                bomb.push_str(&format!("a{step}: &a{step} [{copied}]\n"));
            }
            bomb
        };
        let long_key = "k".repeat(8000);
        let tower = "t: ".to_owned() + &"!t ".repeat(5000) + "x\n";
        let bombs = [
            ("billion laughs", laughs(9, "[x,x,x,x,x,x,x,x,x]")),
            ("binary laughs of a long text", laughs(2, &format!("{long_key:?}"))),
            ("a copied mapping", laughs(9, "{a: b, c: d}")),
            ("merges", format!("a: &a {{k: [{}]}}\nb:\n  <<: *a\n", vec!["x"; 5000].join(","))),
            ("one long text, copied", format!("a: &a {long_key}\nb: [{}]\n", vec!["*a"; 1000].join(","))),
            (
                "copied keys",
                format!(
                    "a: &a {long_key}\n{}",
                    (0..300).fold(String::new(), |all, at| all + &format!("b{at}:\n  *a : {at}\n"))
                ),
            ),
            ("a value in itself", "a: &a [*a, *a]\n".to_owned()),
            ("brackets", "a: ".to_owned() + &"[".repeat(BRACKETS_MAX + 1)),
            ("braces", "a: ".to_owned() + &"{a: ".repeat(BRACKETS_MAX + 1)),
            ("closed brackets", "a: ".to_owned() + &"[".repeat(100) + &"]".repeat(100)),
            ("steps", "a:\n  ".to_owned() + &"- ".repeat(5000) + "x\n"),
            ("questions", "? ".repeat(5000) + "x\n"),
            ("many fields", (0..2600).fold(String::new(), |all, at| all + &format!("{at}:\n"))),
            ("many entries", format!("a: [{}]\n", "1,".repeat(NODES_MAX))),
        ];
        for (name, bomb) in bombs {
            let refused = fields(&bomb);
            assert!(matches!(refused, Err(Unread::TooMuch | Unread::NotYaml { .. })), "{name}: {refused:?}");
        }
        assert_eq!(fields(&"#".repeat(BYTES_MAX + 1)), Err(Unread::TooLong));
        // Tags upon tags are one value.
        assert!(!matches!(fields(&tower), Ok(read) if read.len() > 1));
        assert_eq!(fields("- a\n"), Err(Unread::NoFields));
        assert_eq!(fields("a: b\nc: d: e\n"), Err(Unread::NotYaml { line: Some(3) }));
        assert_eq!(fields("a: b\na: c\n").map(drop), Err(Unread::NotYaml { line: Some(2) }));
    }

    #[test]
    fn a_head_ends_with_its_second_line_of_dashes_or_dots() {
        assert_eq!(split("---\nname: a\n---\nx"), Some(("name: a\n", "x")));
        assert_eq!(split("--- \r\na: b\r\n...\r\nx"), Some(("a: b\r\n", "x")));
        assert_eq!(split("---\n---"), Some(("", "")));
        for other in ["", "---", "---\nname: a\n", "a\n---\n", "--- a\n---\n"] {
            assert_eq!(split(other), None, "{other}");
        }
    }

    /// Pieces that YAML is made of, and of which bombs are.
    fn piece() -> impl Strategy<Value = String> {
        let signs = [
            "&a ",
            "&b ",
            "*a",
            "*b",
            "*a ",
            "[",
            "]",
            "{",
            "}",
            ",",
            ": ",
            "\n",
            "\n  ",
            "\n    ",
            "- ",
            "? ",
            "!t ",
            "!!str ",
            "!!binary ",
            "<<: ",
            "|\n",
            ">-\n",
            "\"",
            "'",
            "\\",
            "#",
            "%",
            "@",
            "`",
            "---",
            "...",
            "~",
            "null",
            "0x7f",
            "1e400",
            ".inf",
            "name: ",
            "数据",
            "\u{feff}",
            "\u{202e}",
            "\u{85}",
            "\u{2028}",
            "\t",
            "\r",
            "\0",
            "x",
        ];
        prop_oneof![
            9 => prop::sample::select(signs.to_vec()).prop_map(str::to_owned),
            1 => (prop::sample::select(signs.to_vec()), 1..400_usize).prop_map(|(sign, times)| sign.repeat(times)),
            1 => any::<char>().prop_map(String::from),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_made_of_the_signs_of_yaml_is_read_within_the_bounds_or_refused(
            pieces in prop::collection::vec(piece(), 0..80)
        ) {
            if let Ok(read) = fields(&pieces.concat()) {
                assert_bounded(read);
            }
        }

        #[test]
        fn fields_that_copy_each_other_at_random_are_read_within_the_bounds_or_refused(
            copies in prop::collection::vec(prop::collection::vec(0..40_usize, 0..12), 1..40)
        ) {
            let mut head = String::new();
            for (at, copied) in copies.iter().enumerate() {
                let copied: Vec<String> = copied.iter().filter(|other| **other < at).map(|other| format!("*a{other}")).collect();
                head.push_str(&format!("a{at}: &a{at} [x, {}]\n", copied.join(", ")));
            }
            if let Ok(read) = fields(&head) {
                assert_bounded(read);
            }
        }
    }
}
