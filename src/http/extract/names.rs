//! The user, the agent and the skill that a path names.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use policy::{AgentId, SkillId, UserId};

use crate::http::App;
use crate::http::answer::problem::Problem;

/// The names in the path, as far as it has them.
///
/// # Errors
/// `invalid`: a segment is not percent-encoded UTF-8, or no name.
pub(in crate::http) async fn named(
    parts: &mut Parts,
    app: &App,
) -> Result<(Option<UserId>, Option<AgentId>, Option<SkillId>), Problem> {
    let params = RawPathParams::from_request_parts(parts, app)
        .await
        .map_err(|_| Problem::invalid("a segment of the path is not percent-encoded UTF-8"))?;
    let (mut user, mut agent, mut skill) = (None, None, None);
    for (name, value) in &params {
        match name {
            "u" => user = Some(UserId::parse(value)?),
            "a" => agent = Some(AgentId::parse(value)?),
            "s" => skill = Some(SkillId::parse(value)?),
            _ => {}
        }
    }
    Ok((user, agent, skill))
}
