//! `GET /v1/skills/{u}/{a}/catalog?format`

use std::fmt::Write;

use axum::extract::State;
use policy::TreeId;
use serde::Deserialize;
use storage::Skill;

use crate::http::App;
use crate::http::answer::{Answer, success};
use crate::http::extract::{Params, SkillsRequest};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    #[serde(default)]
    format: Format,
}

/// How the block is written.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Xml,
    Markdown,
}

/// A skill as a model is told of it.
struct Told {
    name: String,
    description: String,
    /// Where its instructions are.
    location: String,
}

pub(in crate::http) async fn catalog(
    State(app): State<App>,
    request: SkillsRequest,
    Params(query): Params<Query>,
) -> Answer {
    request.check_read()?;
    let (user, agent) = (request.user, request.agent);
    let skills = app.service.skills(user.clone(), agent.clone()).await?;
    let told: Vec<Told> = skills
        .into_iter()
        .map(|Skill { id, metadata, described_by, .. }| {
            let tree = TreeId::Skill(user.clone(), agent.clone(), id).sandbox_path();
            Told {
                name: metadata.name,
                description: metadata.description,
                location: described_by.map_or_else(|| tree.clone(), |file| format!("{tree}/{file}")),
            }
        })
        .collect();
    success(match query.format {
        Format::Xml => xml(&told),
        Format::Markdown => markdown(&told),
    })
}

fn xml(skills: &[Told]) -> String {
    if skills.is_empty() {
        return String::new();
    }
    let mut block = String::from("<available_skills>\n");
    for Told { name, description, location } in skills {
        let [name, description, location] = [name, description, location].map(|text| escaped(text));
        // Writing to a string cannot fail.
        let _ = write!(
            block,
            "  <skill>\n    <name>{name}</name>\n    <description>{description}</description>\n    \
             <location>{location}</location>\n  </skill>\n"
        );
    }
    block.push_str("</available_skills>\n");
    block
}

fn markdown(skills: &[Told]) -> String {
    let mut block = String::new();
    for Told { name, description, location } in skills {
        let [name, description] = [name, description].map(|text| in_a_line(text));
        let _ = writeln!(block, "- **{name}**: {description} (`{}`)", location.replace('`', "'"));
    }
    block
}

/// A text between tags: what could open or end one is spelled out (XML 1.0, 2.4), and what XML cannot hold left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

/// A text that stays in its list item and formats nothing.
fn in_a_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars().filter(|c| !c.is_control()) {
            if matches!(c, '\\' | '*' | '_' | '`' | '[' | ']' | '<' | '>') {
                line.push('\\');
            }
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, description: &str) -> Told {
        Told {
            name: name.to_owned(),
            description: description.to_owned(),
            location: format!("/workspace/skills/{name}/SKILL.md"),
        }
    }

    #[test]
    fn a_description_cannot_end_its_element_or_its_line() {
        let skills = [told("报表", "a < b && \"c\"</description></skill>\u{1b}[31m\n# heading")];
        let block = xml(&skills);
        assert_eq!(block.matches("</description>").count(), 1);
        assert!(block.contains("a &lt; b &amp;&amp; \"c\"&lt;/description&gt;"), "{block}");
        assert!(block.contains("<location>/workspace/skills/报表/SKILL.md</location>"));
        assert!(!block.contains('\u{1b}'));
        let block = markdown(&skills);
        assert_eq!(block.lines().count(), 1, "{block}");
        assert!(
            block.contains(
                "\\</description\\>\\</skill\\>\\[31m # heading (`/workspace/skills/报表/SKILL.md`)"
            )
        );
    }

    #[test]
    fn without_skills_there_is_no_block() {
        assert_eq!((xml(&[]), markdown(&[])), (String::new(), String::new()));
    }
}
