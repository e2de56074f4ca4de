//! `ANY /compat/anthropic/a/{a}/{path}` and `ANY /compat/anthropic/u/{u}/a/{a}/{path}`: `/v1/skills` as Anthropic's clients speak it.
//!
//! Clients of one generation ask by the header `anthropic-beta` for the older shape of answers, with versions named by their times.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::form;
use super::listing::{Parameters, page, version_id, version_of};
use super::request::CompatRequest;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::time::{rfc3339, rfc3339_of_ms};
use crate::http::tree::archive::attached;
use crate::ops::shown::{ID_PREFIX, ShownName, ShownSkill, ShownVersion};

/// What clients of the older generation send in `anthropic-beta`.
const OLD: &str = "skills-2025-10-02";
/// Elements of a page, at most.
const LIMIT_MAX: usize = 1000;
/// The same for clients of the older generation.
const OLD_LIMIT_MAX: usize = 100;

/// The shape of answers that a client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Old,
    New,
}

impl Shape {
    fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all("anthropic-beta").into_iter().filter_map(|value| value.to_str().ok());
        let is_old = values.flat_map(|value| value.split(',')).any(|word| word.trim() == OLD);
        if is_old { Self::Old } else { Self::New }
    }

    fn skill(self, skill: &ShownSkill) -> Value {
        let current = skill.current().or(skill.versions.first());
        let said = current.map(|version| version.said.name.as_str());
        let title = skill.title.as_deref().or(said).unwrap_or(skill.skill.as_str());
        let mut told = json!({
            "id": skill_id(skill),
            "type": "skill",
            "created_at": rfc3339_of_ms(skill.created_ms),
            "updated_at": rfc3339_of_ms(skill.updated_ms),
        });
        let more = match self {
            Self::Old => json!({
                "display_title": title,
                "latest_version": current.map(|version| version.at_us.to_string()),
                "source": if skill.is_own { "custom" } else { "anthropic" },
            }),
            Self::New => json!({
                "display_name": title,
                "latest_version_id": current.map(|version| version_id(&version.version)),
                "source": { "type": if skill.is_own { "custom" } else { "plugin" } },
            }),
        };
        extend(&mut told, more);
        told
    }

    fn version(self, skill: &ShownSkill, version: &ShownVersion) -> Value {
        let mut told = json!({
            "id": version_id(&version.version),
            "type": "skill_version",
            "skill_id": skill_id(skill),
            "name": skill.skill.as_str(),
            "description": version.said.description,
            "created_at": rfc3339(i128::from(version.at_us) * 1000),
        });
        if self == Self::Old {
            let more = json!({ "version": version.at_us.to_string(), "directory": skill.skill.as_str() });
            extend(&mut told, more);
        }
        told
    }

    fn list(self, data: Vec<Value>, next: Option<String>) -> Value {
        let has_more = next.is_some();
        let mut told = json!({ "data": data, "next_page": next });
        if self == Self::Old {
            extend(&mut told, json!({ "has_more": has_more }));
        }
        told
    }
}

/// Answers a request below the base of these clients.
pub(in crate::http) async fn serve(State(app): State<App>, asked: CompatRequest, request: Request) -> Answer {
    let shape = Shape::of(request.headers());
    let uri = request.uri().clone();
    let steps: Vec<&str> = asked.steps.iter().map(String::as_str).collect();
    let method = if asked.method == Method::HEAD { "GET" } else { asked.method.as_str() };
    match (method, steps.as_slice()) {
        ("GET", ["v1", "skills"]) => skills(&app, &asked, shape, &uri).await,
        ("POST", ["v1", "skills"]) => create(&app, &asked, shape, request).await,
        ("GET", ["v1", "skills", key]) => {
            let skill = app.service.shown_skill(asked.audience.clone(), (*key).to_owned()).await?;
            Ok(Json(shape.skill(&skill)).into_response())
        }
        ("DELETE", ["v1", "skills", key]) => remove(&app, &asked, key).await,
        ("GET", ["v1", "skills", key, "versions"]) => versions(&app, &asked, shape, key, &uri).await,
        ("POST", ["v1", "skills", key, "versions"]) => {
            let key = (*key).to_owned();
            add_version(&app, &asked, shape, key, request).await
        }
        ("GET", ["v1", "skills", key, "versions", name]) => {
            let skill = app.service.shown_skill(asked.audience.clone(), (*key).to_owned()).await?;
            let version = skill.named(&named(name)?).ok_or_else(gone)?;
            Ok(Json(shape.version(&skill, version)).into_response())
        }
        ("DELETE", ["v1", "skills", key, "versions", name]) => {
            remove_version(&app, &asked, shape, key, name).await
        }
        ("GET", ["v1", "skills", key, "versions", name, "content"]) => content(&app, &asked, key, name).await,
        _ => Err(asked.no_route()),
    }
}

async fn skills(app: &App, asked: &CompatRequest, shape: Shape, uri: &Uri) -> Answer {
    let parameters = Parameters::of(uri)?;
    let limit = parameters.limit(if shape == Shape::Old { OLD_LIMIT_MAX } else { LIMIT_MAX })?;
    let mut skills = app.service.shown_skills(asked.audience.clone()).await?;
    match parameters.get("source") {
        None => {}
        Some("custom") => skills.retain(|skill| skill.is_own),
        Some("anthropic" | "plugin") => skills.retain(|skill| !skill.is_own),
        Some(_) => skills.clear(),
    }
    let (skills, has_more) = page(skills, skill_id, parameters.get("page"), limit)?;
    let next = skills.last().filter(|_| has_more).map(skill_id);
    Ok(Json(shape.list(skills.iter().map(|skill| shape.skill(skill)).collect(), next)).into_response())
}

async fn create(app: &App, asked: &CompatRequest, shape: Shape, request: Request) -> Answer {
    asked.stands_for("POST /v1/skills/{u}/{a}/upload");
    let sent = form::receive(app, &asked.audience.account()?, request).await?;
    let publisher = asked.publisher(sent.title)?;
    let (skill, _) = app.service.take_shown(publisher, asked.audience.clone(), sent.archive, None).await?;
    Ok(Json(shape.skill(&skill)).into_response())
}

async fn remove(app: &App, asked: &CompatRequest, key: &str) -> Answer {
    asked.stands_for("DELETE /v1/skills/{u}/{a}/{s}");
    let (id, _) = app.service.remove_shown(asked.audience.clone(), key.to_owned()).await?;
    Ok(Json(json!({ "id": format!("{ID_PREFIX}{id}"), "type": "skill_deleted" })).into_response())
}

async fn versions(app: &App, asked: &CompatRequest, shape: Shape, key: &str, uri: &Uri) -> Answer {
    let parameters = Parameters::of(uri)?;
    let limit = parameters.limit(LIMIT_MAX)?;
    let mut skill = app.service.shown_skill(asked.audience.clone(), key.to_owned()).await?;
    let id = |version: &ShownVersion| version_id(&version.version);
    let all = std::mem::take(&mut skill.versions);
    let (versions, has_more) = page(all, id, parameters.get("page"), limit)?;
    let next = versions.last().filter(|_| has_more).map(id);
    let told = versions.iter().map(|version| shape.version(&skill, version)).collect();
    Ok(Json(shape.list(told, next)).into_response())
}

async fn add_version(
    app: &App,
    asked: &CompatRequest,
    shape: Shape,
    key: String,
    request: Request,
) -> Answer {
    asked.stands_for("POST /v1/skills/{u}/{a}/upload");
    let sent = form::receive(app, &asked.audience.account()?, request).await?;
    let publisher = asked.publisher(sent.title)?;
    let (skill, version) =
        app.service.take_shown(publisher, asked.audience.clone(), sent.archive, Some(key)).await?;
    let version = skill.named(&ShownName::Version(version)).or(skill.current()).ok_or_else(gone)?;
    Ok(Json(shape.version(&skill, version)).into_response())
}

async fn remove_version(app: &App, asked: &CompatRequest, shape: Shape, key: &str, name: &str) -> Answer {
    asked.stands_for("DELETE /v1/skills/{u}/{a}/{s}/versions/{v}");
    let (audience, key) = (asked.audience.clone(), key.to_owned());
    let removed = app.service.remove_shown_version(audience, key, named(name)?).await?;
    let id = match shape {
        Shape::Old => removed.at_us.to_string(),
        Shape::New => version_id(&removed.version),
    };
    Ok(Json(json!({ "id": id, "type": "skill_version_deleted" })).into_response())
}

async fn content(app: &App, asked: &CompatRequest, key: &str, name: &str) -> Answer {
    let reads = app.service.admission().reads_of(&asked.audience.account()?);
    let (audience, key) = (asked.audience.clone(), key.to_owned());
    let (skill, packed) = app.service.pack_shown(audience, key, named(name)?).await?;
    Ok(attached(packed, reads, "application/zip", &format!("{skill}.zip")))
}

/// What a path says of a version: `latest`, an id, or the time of the older generation.
fn named(name: &str) -> Result<ShownName, Problem> {
    let name = match name {
        "latest" => Some(ShownName::Current),
        name => version_of(name).or_else(|| name.parse().ok().map(ShownName::Micros)),
    };
    name.ok_or_else(gone)
}

fn gone() -> Problem {
    Problem::new(Code::NotFound, "the skill has no such version")
}

pub(super) fn skill_id(skill: &ShownSkill) -> String {
    format!("{ID_PREFIX}{}", skill.id)
}

/// Adds the fields of one object to another.
fn extend(object: &mut Value, more: Value) {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_generation_says_so_somewhere_in_a_header() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("anthropic-beta", value.parse().unwrap());
            }
            Shape::of(&headers)
        };
        for values in [&[OLD][..], &["a, skills-2025-10-02,skills-2025-10-02"], &["a", OLD]] {
            assert_eq!(of(values), Shape::Old, "{values:?}");
        }
        for values in [&[][..], &["code-execution-2025-08-25"], &["skills-2026-01-01"]] {
            assert_eq!(of(values), Shape::New, "{values:?}");
        }
    }
}
