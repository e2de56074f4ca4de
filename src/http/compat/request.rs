//! [`CompatRequest`]: whose skills a request at a door is about, and what it asks.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method};
use percent_encoding::percent_decode_str;
use policy::{AgentId, UserId};

use crate::access::{Action, Refused, Role};
use crate::config::SkillRules;
use crate::http::answer::problem::{Code, Problem};
use crate::http::extract::{admitted, bearer, named};
use crate::http::{App, request_log};
use crate::ops::shown::Audience;
use crate::ops::versions::Publisher;

/// The header in which clients of one vendor send their token.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A vendor whose clients come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Door {
    Anthropic,
    OpenAi,
}

impl Door {
    /// The door that a route belongs to.
    pub(in crate::http) fn of(route: &str) -> Option<Self> {
        if route.starts_with("/compat/anthropic/") {
            Some(Self::Anthropic)
        } else if route.starts_with("/compat/openai/") {
            Some(Self::OpenAi)
        } else {
            None
        }
    }

    /// As records have it.
    fn word(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
        }
    }
}

/// A request at a door, by a caller who may do what its method says.
pub(in crate::http) struct CompatRequest {
    pub(in crate::http) audience: Audience,
    pub(in crate::http) method: Method,
    /// The path below the base, decoded segment by segment.
    pub(in crate::http) steps: Vec<String>,
    door: Door,
    subject: String,
    is_strict: bool,
}

impl CompatRequest {
    /// Notes that the request stands for a route of the service.
    pub(in crate::http) fn stands_for(&self, action: &'static str) {
        request_log::stands_for(action, self.door.word());
    }

    /// The caller as the publisher of a version of the title `title`, which only skills of all users have.
    pub(in crate::http) fn publisher(&self, title: Option<String>) -> Result<Publisher, Problem> {
        let title = title.filter(|_| self.audience.user.is_none());
        Ok(Publisher::new(self.subject.clone(), title, None)?.strictly(self.is_strict))
    }

    /// The refusal of a path that the vendor does not have.
    pub(in crate::http) fn no_route(&self) -> Problem {
        Problem::new(Code::NotFound, "there is no such route: see docs/COMPAT.md")
    }
}

impl FromRequestParts<App> for CompatRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let path = parts.uri.path().to_owned();
        let door = Door::of(&path).ok_or_else(|| Problem::new(Code::NotFound, "there is no such door"))?;
        let caller = app.access.caller(token(door, &parts.headers)?)?;
        request_log::caller(&caller);
        let (user, agent, _) = named(parts, app).await?;
        let agent = agent.ok_or_else(|| Problem::invalid("the path names no agent"))?;
        match &user {
            Some(user) => request_log::skills(user, &agent, None),
            None => request_log::agent(&agent),
        }
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let audience = audience(&caller.role, user, agent, reads)?;
        request_log::scope(audience.scope());
        admitted(app)?;
        let before = match (&audience.user, door) {
            // "", "compat", the door, "a", the agent; and what follows before the rest.
            (None, Door::Anthropic) => 5,
            (None, Door::OpenAi) => 6,
            (Some(_), Door::Anthropic) => 7,
            (Some(_), Door::OpenAi) => 8,
        };
        let steps = path.split('/').skip(before).map(decoded).collect::<Result<_, _>>()?;
        let (method, subject) = (parts.method.clone(), caller.subject().to_owned());
        let is_strict = app.compat == Some(SkillRules::Refuse);
        Ok(Self { audience, method, steps, door, subject, is_strict })
    }
}

fn decoded(segment: &str) -> Result<String, Problem> {
    let decoded = percent_decode_str(segment).decode_utf8();
    let decoded = decoded.map_err(|_| Problem::invalid("the path is not percent-encoded UTF-8"))?;
    Ok(decoded.into_owned())
}

/// The token of a request: of one vendor, in either of two headers.
fn token(door: Door, headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let key = headers.get(API_KEY).filter(|_| door == Door::Anthropic);
    let key = key.and_then(|value| value.to_str().ok()).map(str::trim);
    match (bearer(headers), key) {
        (Some(token), Some(key)) if token != key => Err(Refused::Unauthenticated.into()),
        (token, key) => Ok(token.or(key)),
    }
}

/// Whose skills the caller may see, or change.
fn audience(role: &Role, user: Option<UserId>, agent: AgentId, reads: bool) -> Result<Audience, Problem> {
    role.may(match (&user, reads) {
        (Some(user), true) => Action::Read(user, &agent),
        (Some(user), false) => Action::Change(user, &agent),
        (None, true) => Action::ReadBaseline(&agent),
        (None, false) => Action::ChangeBaseline(&agent),
    })?;
    let with_staged = user.is_none() && role.may(Action::ChangeBaseline(&agent)).is_ok();
    Ok(Audience { agent, user, with_staged })
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;

    #[test]
    fn a_token_comes_in_either_header_of_one_vendor_and_two_of_them_must_agree() {
        let read = |door, headers: &[(HeaderName, &str)]| {
            let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
            token(door, &headers.collect()).map(|token| token.map(str::to_owned)).ok()
        };
        let bearer = (header::AUTHORIZATION, "Bearer a");
        let some = |text: &str| Some(Some(text.to_owned()));
        for (door, headers, expected) in [
            (Door::Anthropic, vec![bearer.clone()], some("a")),
            (Door::Anthropic, vec![(API_KEY, "b")], some("b")),
            (Door::Anthropic, vec![bearer.clone(), (API_KEY, "a")], some("a")),
            (Door::Anthropic, vec![bearer.clone(), (API_KEY, "b")], None),
            (Door::OpenAi, vec![(API_KEY, "b")], Some(None)),
            (Door::OpenAi, vec![bearer, (API_KEY, "b")], some("a")),
        ] {
            assert_eq!(read(door, &headers), expected, "{door:?} {headers:?}");
        }
    }
}
