//! [`Head`]: what a `SKILL.md` says of its skill, and the entry that follows from it.

use policy::SkillId;
use policy::front_matter::{fields, split};
use rmcp::model::{Resource, Skill, SkillFrontmatter, SkillResource, SkillResources};
use serde_json::{Map, Number, Value};
use serde_yaml_ng::Value as Yaml;

use crate::config::SkillNames;
use crate::mcp::uri;
use crate::ops::manifests::{ManifestFile, NoManifest, SKILL_MD};

/// Bytes that the names of a skill's files may have together.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Why a skill is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    Manifest(NoManifest),
    /// Its `SKILL.md` does not begin with front matter that is YAML.
    NoFrontMatter,
    /// The front matter has no `name` or no `description` that is a text.
    NoName,
    /// The name is against the rules, or has other characters than the configuration allows.
    Name,
    /// The names of its files are longer than an entry may be.
    Names,
    /// It breaks another rule for entries.
    Entry,
}

impl From<NoManifest> for LeftOut {
    fn from(none: NoManifest) -> Self {
        Self::Manifest(none)
    }
}

impl LeftOut {
    /// The sentence for the author of the skill.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Manifest(NoManifest::NoSkillMd) => "it has no file `SKILL.md`, spelled so",
            Self::Manifest(NoManifest::Files) => "it has more than 512 files",
            Self::Manifest(NoManifest::Bytes) => "it has more than 16 MiB",
            Self::Manifest(NoManifest::Link) => "a link leads out of it",
            Self::NoFrontMatter => "`SKILL.md` does not begin with front matter in YAML",
            Self::NoName => "the front matter has no `name` or no `description` that is a text",
            Self::Name => "the `name` is not of 1 to 64 small letters, digits and single hyphens",
            Self::Names => "the names of its files are too long together",
            Self::Entry => "it breaks a rule of the skills extension",
        }
    }
}

/// What the front matter of a `SKILL.md` says, with every field.
#[derive(Debug)]
pub(super) struct Head {
    front: SkillFrontmatter,
}

impl Head {
    /// Reads the beginning of a `SKILL.md`.
    ///
    /// # Errors
    /// [`LeftOut`].
    pub(super) fn read(bytes: &[u8], names: SkillNames) -> Result<Self, LeftOut> {
        // The head may be cut within a character.
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => bytes
                .get(..error.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok())
                .unwrap_or_default(),
        };
        let (head, _) = split(text).ok_or(LeftOut::NoFrontMatter)?;
        let mut all =
            object(fields(head).map_err(|_| LeftOut::NoFrontMatter)?).ok_or(LeftOut::NoFrontMatter)?;
        let mut text = |key: &str| match all.remove(key) {
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
            _ => Err(LeftOut::NoName),
        };
        let (name, description) = (text("name")?, text("description")?);
        if names == SkillNames::Ascii && !name.is_ascii() {
            return Err(LeftOut::Name);
        }
        let front = SkillFrontmatter::new(name, description);
        Ok(Self { front: all.into_iter().fold(front, |front, (key, value)| front.with_field(key, value)) })
    }

    /// The name of the skill.
    pub(super) fn name(&self) -> &str {
        &self.front.name
    }

    /// What the URIs of the skill `id` begin with: its id, and its name where that is another.
    fn base(&self, id: &SkillId) -> String {
        let (id, name) = (id.as_str(), self.name());
        format!("{}/", uri::of_skill(if id == name { vec![id] } else { vec![id, name] }))
    }

    /// The entry of the skill `id` with `files`, whose URIs begin with `base`.
    ///
    /// # Errors
    /// [`LeftOut`].
    pub(super) fn entry(
        self,
        id: &SkillId,
        base: Option<&str>,
        files: Vec<ManifestFile>,
    ) -> Result<Skill, LeftOut> {
        let base = base.map_or_else(|| self.base(id), str::to_owned);
        let resources: Vec<SkillResource> = files
            .into_iter()
            .map(|file| {
                let uri = format!("{base}{}", uri::encoded(file.path.as_str()));
                SkillResource::new(uri, digest(&file.sha256), file.bytes)
            })
            .collect();
        if resources.iter().map(|file| file.uri.len()).sum::<usize>() > TEXT_BYTES_MAX {
            return Err(LeftOut::Names);
        }
        let skill = Skill::new(format!("{base}{SKILL_MD}"), self.front, SkillResources::Files(resources));
        match skill.validate() {
            Ok(()) => Ok(skill),
            Err(rmcp::model::SkillValidationError::InvalidName(_)) => Err(LeftOut::Name),
            Err(_) => Err(LeftOut::Entry),
        }
    }

    /// The `SKILL.md` of the skill `id` as a resource.
    pub(super) fn resource(self, id: &SkillId) -> Resource {
        let uri = format!("{}{SKILL_MD}", self.base(id));
        Resource::new(uri, self.front.name)
            .with_description(self.front.description)
            .with_mime_type("text/markdown")
    }
}

fn digest(sha256: &[u8; 32]) -> String {
    format!("sha256:{}", hex::encode(sha256))
}

/// A mapping as an object of JSON; nothing when a key is no scalar.
fn object(mapping: serde_yaml_ng::Mapping) -> Option<Map<String, Value>> {
    mapping
        .into_iter()
        .map(|(key, value)| {
            let key = match key {
                Yaml::String(key) => key,
                Yaml::Number(key) => key.to_string(),
                Yaml::Bool(key) => key.to_string(),
                _ => return None,
            };
            Some((key, json(value)?))
        })
        .collect()
}

/// A value of YAML as one of JSON, of the same type.
fn json(value: Yaml) -> Option<Value> {
    Some(match value {
        Yaml::Null => Value::Null,
        Yaml::Bool(value) => value.into(),
        Yaml::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => number.into(),
            (_, Some(number), _) => number.into(),
            (.., number) => number.and_then(Number::from_f64).map_or(Value::Null, Value::Number),
        },
        Yaml::String(text) => text.into(),
        Yaml::Sequence(values) => Value::Array(values.into_iter().map(json).collect::<Option<_>>()?),
        Yaml::Mapping(mapping) => Value::Object(object(mapping)?),
        Yaml::Tagged(tagged) => json(tagged.value)?,
    })
}

#[cfg(test)]
mod tests {
    use policy::RelPath;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Head, LeftOut> {
        Head::read(text.as_bytes(), SkillNames::Unicode)
    }

    fn files(paths: &[&str]) -> Vec<ManifestFile> {
        let file =
            |path: &&str| ManifestFile { path: RelPath::parse(path).unwrap(), bytes: 1, sha256: [0xab; 32] };
        paths.iter().map(file).collect()
    }

    #[test]
    fn front_matter_is_told_with_every_field_and_type() {
        let head = read(
            "---\nname: pdf\ndescription: Fills.\nlicense: MIT\nmetadata:\n  version: \"1.0\"\n  n: [1, 2.5, true, null]\n1: x\n---\nbody",
        );
        let entry =
            head.unwrap().entry(&SkillId::parse("pdf").unwrap(), None, files(&["SKILL.md", "目录/a b"]));
        let digest = format!("sha256:{}", "ab".repeat(32));
        assert_eq!(
            serde_json::to_value(entry.unwrap()).unwrap(),
            json!({
                "uri": "skill://pdf/SKILL.md",
                "frontmatter": { "name": "pdf", "description": "Fills.", "license": "MIT", "1": "x",
                    "metadata": { "version": "1.0", "n": [1, 2.5, true, null] } },
                "resources": [
                    { "uri": "skill://pdf/SKILL.md", "digest": digest, "size": 1 },
                    { "uri": "skill://pdf/%E7%9B%AE%E5%BD%95/a%20b", "digest": digest, "size": 1 },
                ],
            })
        );
    }

    #[test]
    fn a_skill_that_has_another_id_than_name_is_named_by_both() {
        let head = read("---\nname: 数据统计\ndescription: d\n---\n").unwrap();
        assert_eq!(head.base(&SkillId::parse("数据统计").unwrap()).matches('/').count(), 3);
        let base = head.base(&SkillId::parse("Stats v2").unwrap());
        assert!(base.starts_with("skill://Stats%20v2/%E6%95%B0"), "{base}");
        let entry = head.entry(&SkillId::parse("Stats v2").unwrap(), None, files(&["SKILL.md"]));
        assert_eq!(entry.unwrap().uri, format!("{base}SKILL.md"));
    }

    #[test]
    fn what_breaks_a_rule_is_left_out_and_told_why() {
        for (text, why) in [
            ("# no head", LeftOut::NoFrontMatter),
            ("---\nname: a\n", LeftOut::NoFrontMatter),
            ("---\n- a\n---\n", LeftOut::NoFrontMatter),
            ("---\nname: a: b\n---\n", LeftOut::NoFrontMatter),
            ("---\nname: a\n---\n", LeftOut::NoName),
            ("---\nname: 1\ndescription: d\n---\n", LeftOut::NoName),
            ("---\nname: a\ndescription: \" \"\n---\n", LeftOut::NoName),
            ("---\nname: a\ndescription: d\n[x]: y\n---\n", LeftOut::NoFrontMatter),
        ] {
            assert_eq!(read(text).err(), Some(why), "{text}");
        }
        for name in ["A", "a--b", "-a", "a b", "a/b", &"a".repeat(65)] {
            let head = read(&format!("---\nname: {name}\ndescription: d\n---\n")).unwrap();
            let entry = head.entry(&SkillId::parse("x").unwrap(), None, files(&["SKILL.md"]));
            assert_eq!(entry.err(), Some(LeftOut::Name), "{name}");
        }
        let other = "---\nname: 数\ndescription: d\n---\n".as_bytes();
        assert_eq!(Head::read(other, SkillNames::Ascii).err(), Some(LeftOut::Name));
        let long: Vec<String> = (0..500)
            .map(|n| {
                format!(
                    "{n}/{}",
                    "目"
                        .repeat(80)
                        .repeat(4)
                        .chars()
                        .collect::<Vec<_>>()
                        .chunks(80)
                        .map(|part| part.iter().collect::<String>())
                        .collect::<Vec<_>>()
                        .join("/")
                )
            })
            .collect();
        let mut paths: Vec<&str> = long.iter().map(String::as_str).collect();
        paths.push("SKILL.md");
        let entry = read("---\nname: a\ndescription: d\n---\n").unwrap().entry(
            &SkillId::parse("a").unwrap(),
            None,
            files(&paths),
        );
        assert_eq!(entry.err(), Some(LeftOut::Names));
    }
}
