//! `GET /v1/registry?id&agent&user&skill&scope&limit&cursor` and `POST /v1/registry/rebuild`

use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use policy::{AgentId, Scope, SkillId, UserId};
use serde::{Deserialize, Serialize};
use storage::{Shelf, Version};

use crate::access::Reach;
use crate::http::App;
use crate::http::answer::page;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::time::rfc3339_of_ms;
use crate::http::answer::{Answer, made, success_with};
use crate::http::extract::{NoParams, Params, Rebuilder, Someone};
use crate::ops::Error;
use crate::ops::shown::ID_PREFIX;
use crate::registry::{Owners, Question, Row};

/// Digits of the id of a row.
const ID_DIGITS: usize = 32;
/// About what a row takes in an answer, in bytes.
const ROW_BYTES: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    id: Option<String>,
    agent: Option<String>,
    user: Option<String>,
    skill: Option<String>,
    scope: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A row as it is sent.
#[derive(Serialize)]
struct Registered {
    id: String,
    agent_id: AgentId,
    skill_id: SkillId,
    /// Null for a skill of all users.
    user_id: Option<UserId>,
    version: Version,
    digest: String,
    size: u64,
    name: String,
    description: String,
    /// Who called: a user, or the name of another token.
    uploaded_by: Option<String>,
    created_at: String,
}

#[derive(Serialize)]
struct Beside {
    /// False while rows are made again after a failure: some may be missing, or of before.
    complete: bool,
    #[serde(flatten)]
    page: page::Beside,
}

#[derive(Serialize)]
struct Rebuilt {
    rows: usize,
}

impl From<Row> for Registered {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            agent_id: row.shelf.agent,
            skill_id: row.shelf.skill,
            user_id: row.shelf.user,
            version: row.version,
            digest: row.digest,
            size: row.size,
            name: row.name,
            description: row.description,
            uploaded_by: row.uploaded_by,
            created_at: rfc3339_of_ms(row.created_ms),
        }
    }
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    Someone(caller): Someone,
    Params(query): Params<Query>,
) -> Answer {
    let id = query.id.map(id_of).transpose()?;
    let agent = query.agent.as_deref().map(AgentId::parse).transpose().map_err(Error::from)?;
    let user = query.user.as_deref().map(UserId::parse).transpose().map_err(Error::from)?;
    let skill = query.skill.as_deref().map(SkillId::parse).transpose().map_err(Error::from)?;
    let scope = query.scope.as_deref().map(str::parse::<Scope>).transpose().map_err(Error::from)?;
    let Reach { agent, only_of } = caller.role.reach(agent.as_ref(), user.as_ref())?;
    let owners = owners(user, scope, only_of, agent.is_some())?;
    let most = app.service.file_limits().list_entries;
    let span = page::span(query.limit, most)?;
    let after = query.cursor.as_deref().map(shelf_of).transpose()?;
    // One more than are sent tells whether there are more.
    let question =
        Question { id, agent: agent.cloned(), skill, owners, after, limit: span.saturating_add(1) };
    let answer = app.service.registered(question).await?;
    let mut rows = answer.rows;
    let is_last = rows.len() <= span;
    let is_paged = query.limit.is_some() || query.cursor.is_some();
    if !is_paged && !is_last {
        let message = format!("the list has more than {most} elements: send `limit`");
        return Err(Problem::new(Code::TooLarge, message).with("limit_entries", most));
    }
    rows.truncate(span);
    let next = is_paged.then(|| rows.last().filter(|_| !is_last).map(|row| cursor_of(&row.shelf)));
    let beside = Beside { complete: answer.is_complete, page: page::Beside::new(next) };
    made(app.service.admission(), rows.len().saturating_mul(ROW_BYTES), move || {
        success_with(rows.into_iter().map(Registered::from).collect::<Vec<_>>(), beside)
    })
    .await
}

pub(in crate::http) async fn rebuild(State(app): State<App>, _caller: Rebuilder, _: NoParams) -> Answer {
    let rows = app.service.rebuild_registry().await?;
    success_with("The registry was made anew", Rebuilt { rows })
}

/// The id of a row, also as clients of the vendors' registries have it.
fn id_of(mut sent: String) -> Result<String, Problem> {
    if let Some(id) = sent.strip_prefix(ID_PREFIX) {
        sent = id.to_owned();
    }
    let is_id = sent.len() == ID_DIGITS && sent.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let wrong = || Problem::invalid(format!("`id` is no id of a row: it has {ID_DIGITS} hexadecimal digits"));
    if is_id { Ok(sent) } else { Err(wrong()) }
}

/// Whose rows are asked for, of those that the caller may see.
fn owners(
    user: Option<UserId>,
    scope: Option<Scope>,
    only_of: Option<&UserId>,
    knows_agent: bool,
) -> Result<Owners, Problem> {
    Ok(match (user, scope, only_of) {
        (Some(_), Some(Scope::Baseline), _) => {
            return Err(Problem::invalid("skills of the scope `baseline` are no user's: leave `user` out"));
        }
        (Some(user), ..) => Owners::User(user),
        (None, Some(Scope::Baseline), Some(_)) if !knows_agent => {
            return Err(Problem::invalid(
                "this token sees the baseline of one agent at a time: send `agent`",
            ));
        }
        (None, Some(Scope::Baseline), _) => Owners::Baseline,
        (None, Some(Scope::Overlay), Some(own)) => Owners::User(own.clone()),
        (None, Some(Scope::Overlay), None) => Owners::Overlays,
        (None, None, Some(own)) if knows_agent => Owners::UserAndBaseline(own.clone()),
        (None, None, Some(own)) => Owners::User(own.clone()),
        (None, None, None) => Owners::All,
    })
}

/// The cursor behind a row: the names that rows are sorted by.
fn cursor_of(shelf: &Shelf) -> String {
    let user = shelf.user.as_ref().map(UserId::as_str);
    let names = serde_json::to_vec(&(shelf.agent.as_str(), shelf.skill.as_str(), user)).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(names)
}

fn shelf_of(cursor: &str) -> Result<Shelf, Problem> {
    let read = || {
        let names = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (agent, skill, user): (String, String, Option<String>) = serde_json::from_slice(&names).ok()?;
        Some(Shelf {
            agent: AgentId::parse(&agent).ok()?,
            skill: SkillId::parse(&skill).ok()?,
            user: user.map(|user| UserId::parse(&user)).transpose().ok()?,
        })
    };
    read().ok_or_else(|| Problem::invalid("the `cursor` is none that this list gave out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_row_and_nothing_else_is_one() {
        for user in [None, Some("甲\"")] {
            let shelf = Shelf {
                agent: AgentId::parse("a").unwrap(),
                skill: SkillId::parse("数据").unwrap(),
                user: user.map(|user| UserId::parse(user).unwrap()),
            };
            assert_eq!(shelf_of(&cursor_of(&shelf)).unwrap(), shelf);
        }
        for other in ["", "a", "!", "WyJhIl0", &URL_SAFE_NO_PAD.encode("[\"..\",\"s\",null]")] {
            assert!(shelf_of(other).is_err(), "{other}");
        }
    }
}
