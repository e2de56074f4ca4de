//! `ANY /compat/openai/a/{a}/v1/{path}` and `ANY /compat/openai/u/{u}/a/{a}/v1/{path}`: `/skills` as OpenAI's clients speak it.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};

use super::anthropic::skill_id;
use super::form;
use super::listing::{Parameters, page, version_id, version_of};
use super::request::CompatRequest;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::answer::problem::{Code, Problem};
use crate::http::extract::body;
use crate::http::extract::parse_json;
use crate::http::tree::archive::attached;
use crate::ops::shown::{ID_PREFIX, ShownName, ShownSkill, ShownVersion};

/// Elements of a page, at most.
const LIMIT_MAX: usize = 100;
/// Largest body that is JSON, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

#[derive(Deserialize)]
struct Change {
    default_version: String,
}

/// Answers a request below the base of these clients.
pub(in crate::http) async fn serve(State(app): State<App>, asked: CompatRequest, request: Request) -> Answer {
    let uri = request.uri().clone();
    let steps: Vec<&str> = asked.steps.iter().map(String::as_str).collect();
    let method = if asked.method == Method::HEAD { "GET" } else { asked.method.as_str() };
    match (method, steps.as_slice()) {
        ("GET", ["skills"]) => skills(&app, &asked, &uri).await,
        ("POST", ["skills"]) => create(&app, &asked, request).await,
        ("GET", ["skills", key]) => Ok(Json(skill(&look(&app, &asked, key).await?)).into_response()),
        ("POST", ["skills", key]) => set_default(&app, &asked, key, request).await,
        ("DELETE", ["skills", key]) => remove(&app, &asked, key).await,
        ("GET", ["skills", key, "content"]) => content(&app, &asked, key, None).await,
        ("GET", ["skills", key, "versions"]) => versions(&app, &asked, key, &uri).await,
        ("POST", ["skills", key, "versions"]) => add_version(&app, &asked, key, request).await,
        ("GET", ["skills", key, "versions", name]) => {
            let found = look(&app, &asked, key).await?;
            let one = found.named(&named(name)?).ok_or_else(gone)?;
            Ok(Json(version(&found, one)).into_response())
        }
        ("DELETE", ["skills", key, "versions", name]) => remove_version(&app, &asked, key, name).await,
        ("GET", ["skills", key, "versions", name, "content"]) => content(&app, &asked, key, Some(name)).await,
        _ => Err(asked.no_route()),
    }
}

async fn look(app: &App, asked: &CompatRequest, key: &str) -> Result<ShownSkill, Problem> {
    Ok(app.service.shown_skill(asked.audience.clone(), key.to_owned()).await?)
}

async fn skills(app: &App, asked: &CompatRequest, uri: &Uri) -> Answer {
    let parameters = Parameters::of(uri)?;
    let limit = parameters.limit(LIMIT_MAX)?;
    let mut skills = app.service.shown_skills(asked.audience.clone()).await?;
    if is_ascending(&parameters)? {
        skills.reverse();
    }
    let (skills, has_more) = page(skills, skill_id, parameters.get("after"), limit)?;
    let ids = (skills.first().map(skill_id), skills.last().map(skill_id));
    Ok(list(skills.iter().map(skill).collect(), ids, has_more))
}

async fn create(app: &App, asked: &CompatRequest, request: Request) -> Answer {
    asked.stands_for("POST /v1/skills/{u}/{a}/upload");
    let sent = form::receive(app, &asked.audience.account()?, request).await?;
    let publisher = asked.publisher(None)?;
    let (made, _) = app.service.take_shown(publisher, asked.audience.clone(), sent.archive, None).await?;
    Ok(Json(skill(&made)).into_response())
}

async fn set_default(app: &App, asked: &CompatRequest, key: &str, request: Request) -> Answer {
    asked.stands_for("POST /v1/skills/{u}/{a}/{s}/rollback");
    let bytes = body::collect(app, request.into_body(), BODY_BYTES_MAX).await?;
    let Change { default_version } = parse_json(&bytes)?;
    let (publisher, audience, wanted) =
        (asked.publisher(None)?, asked.audience.clone(), named(&default_version)?);
    let set = app.service.set_shown(publisher, audience, key.to_owned(), wanted).await?;
    Ok(Json(skill(&set)).into_response())
}

async fn remove(app: &App, asked: &CompatRequest, key: &str) -> Answer {
    asked.stands_for("DELETE /v1/skills/{u}/{a}/{s}");
    let (id, _) = app.service.remove_shown(asked.audience.clone(), key.to_owned()).await?;
    let told = json!({ "id": format!("{ID_PREFIX}{id}"), "deleted": true, "object": "skill.deleted" });
    Ok(Json(told).into_response())
}

async fn versions(app: &App, asked: &CompatRequest, key: &str, uri: &Uri) -> Answer {
    let parameters = Parameters::of(uri)?;
    let limit = parameters.limit(LIMIT_MAX)?;
    let mut found = look(app, asked, key).await?;
    let mut all = std::mem::take(&mut found.versions);
    if is_ascending(&parameters)? {
        all.reverse();
    }
    let id = |version: &ShownVersion| version_id(&version.version);
    let (page, has_more) = page(all, id, parameters.get("after"), limit)?;
    let ids = (page.first().map(id), page.last().map(id));
    Ok(list(page.iter().map(|one| version(&found, one)).collect(), ids, has_more))
}

/// A version that its sender does not call the default is kept beside the one in force.
async fn add_version(app: &App, asked: &CompatRequest, key: &str, request: Request) -> Answer {
    asked.stands_for("POST /v1/skills/{u}/{a}/upload");
    let sent = form::receive(app, &asked.audience.account()?, request).await?;
    let is_staged = !sent.is_default && asked.audience.user.is_none();
    let publisher = asked.publisher(None)?.staging(is_staged);
    let key = Some(key.to_owned());
    let (found, made) = app.service.take_shown(publisher, asked.audience.clone(), sent.archive, key).await?;
    let made = found.named(&ShownName::Version(made)).or(found.current()).ok_or_else(gone)?;
    Ok(Json(version(&found, made)).into_response())
}

async fn remove_version(app: &App, asked: &CompatRequest, key: &str, name: &str) -> Answer {
    asked.stands_for("DELETE /v1/skills/{u}/{a}/{s}/versions/{v}");
    let (audience, key) = (asked.audience.clone(), key.to_owned());
    let gone = app.service.remove_shown_version(audience, key, named(name)?).await?;
    let told = json!({
        "id": version_id(&gone.version),
        "deleted": true,
        "object": "skill.version.deleted",
        "version": gone.number.to_string(),
    });
    Ok(Json(told).into_response())
}

/// A version as a ZIP; without a name, the one in force.
async fn content(app: &App, asked: &CompatRequest, key: &str, name: Option<&str>) -> Answer {
    let wanted = name.map_or(Ok(ShownName::Current), named)?;
    let reads = app.service.admission().reads_of(&asked.audience.account()?);
    let (audience, key) = (asked.audience.clone(), key.to_owned());
    let (skill, packed) = app.service.pack_shown(audience, key, wanted).await?;
    Ok(attached(packed, reads, "application/zip", &format!("{skill}.zip")))
}

fn is_ascending(parameters: &Parameters) -> Result<bool, Problem> {
    match parameters.get("order") {
        None | Some("desc") => Ok(false),
        Some("asc") => Ok(true),
        Some(_) => Err(Problem::invalid("`order` is `asc` or `desc`")),
    }
}

/// What a client says of a version: a number, `latest`, or an id.
fn named(name: &str) -> Result<ShownName, Problem> {
    let name = match name {
        "latest" => Some(ShownName::Latest),
        name => version_of(name).or_else(|| name.parse().ok().map(ShownName::Number)),
    };
    name.ok_or_else(gone)
}

fn gone() -> Problem {
    Problem::new(Code::NotFound, "the skill has no such version")
}

fn skill(shown: &ShownSkill) -> Value {
    let (current, latest) = (shown.current().or(shown.versions.first()), shown.versions.first());
    json!({
        "id": skill_id(shown),
        "object": "skill",
        "created_at": shown.created_ms.div_euclid(1000),
        "name": shown.skill.as_str(),
        "description": current.map_or("", |version| version.said.description.as_str()),
        "default_version": current.map(|version| version.number.to_string()),
        "latest_version": latest.map(|version| version.number.to_string()),
    })
}

fn version(skill: &ShownSkill, version: &ShownVersion) -> Value {
    json!({
        "id": version_id(&version.version),
        "object": "skill.version",
        "skill_id": skill_id(skill),
        "version": version.number.to_string(),
        "name": skill.skill.as_str(),
        "description": version.said.description,
        "created_at": version.at_us.div_euclid(1_000_000),
    })
}

fn list(
    data: Vec<Value>,
    (first, last): (Option<String>, Option<String>),
    has_more: bool,
) -> axum::response::Response {
    let told =
        json!({ "object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more });
    Json(told).into_response()
}
