//! What requests carry: who asks, which tree, which parameters.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use policy::{AgentId, RelPath, Scope, SkillId, TreeId, UserId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use storage::{SandboxId, SnapshotId};

use super::App;
use super::body;
use super::elsewhere::Lent;
use super::facts;
use super::object::Object;
use super::problem::Problem;
use crate::access::{Access, Action, Caller, Role};
use crate::ops::admission::{Job, Weight};
use crate::ops::elsewhere::Backend;
use crate::ops::run::id::ExecId;

/// Largest JSON body of most routes, in bytes.
const JSON_BYTES_MAX: usize = 64 * 1024;
/// Size from which JSON is read in a thread of its own, in bytes: the runtime's threads belong to all requests.
const LARGE_JSON_BYTES: usize = 256 * 1024;

/// Finds out who the sender is.
fn caller(access: &Access, headers: &HeaderMap) -> Result<Caller, Problem> {
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let caller = access.caller(token)?;
    facts::caller(&caller);
    Ok(caller)
}

/// Lets the caller make a change, unless its changes have filled its part of the audit log. To be asked when it is
/// known who asks and about whom, and before anything is done.
fn admitted(app: &App) -> Result<(), Problem> {
    if facts::is_change() {
        app.service.audit.admit(&facts::account())?;
    }
    Ok(())
}

async fn named(
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

/// The workspace that the path names, when it names one; asked by nobody in particular.
pub(super) async fn workspace_of(parts: &mut Parts, app: &App) -> Option<SandboxId> {
    match named(parts, app).await {
        Ok((Some(user), Some(agent), None)) => Some(SandboxId { user, agent }),
        _ => None,
    }
}

/// A request for one tree by somebody who may ask for it: reading for `GET` and `HEAD`, changing otherwise.
pub(super) struct TreeRequest {
    pub(super) id: TreeId,
    /// What answers for the tree, when this service does not.
    pub(super) backend: Option<Arc<Backend>>,
}

/// A request for one tree that reads whatever its method is, because what is asked takes a body.
pub(super) struct TreeQuestion {
    pub(super) id: TreeId,
}

impl FromRequestParts<App> for TreeRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let Allowed { tree, backend, .. } = used_tree(parts, app, !reads).await?;
        Ok(Self { id: tree, backend })
    }
}

/// A tree that the caller may ask for.
struct Allowed {
    tree: TreeId,
    role: Role,
    /// What answers for it, when this service does not.
    backend: Option<Arc<Backend>>,
}

/// The tree that the path names, if the caller may read it, or change it when the request `changes` it.
async fn used_tree(parts: &mut Parts, app: &App, changes: bool) -> Result<Allowed, Problem> {
    let allowed = allowed_tree(parts, app, changes).await?;
    // What another backend answers for is no use of what lies here.
    if allowed.backend.is_none() {
        app.service.note_use(SandboxId::of(&allowed.tree)).await?;
    }
    Ok(allowed)
}

/// As [`used_tree`], for somebody who does not use the tree by it.
async fn allowed_tree(parts: &mut Parts, app: &App, changes: bool) -> Result<Allowed, Problem> {
    let Caller { role, .. } = caller(&app.access, &parts.headers)?;
    let (Some(user), Some(agent), skill) = named(parts, app).await? else {
        return Err(Problem::invalid("the path names no user and agent"));
    };
    facts::tree(&user, &agent, skill.as_ref());
    role.may(if changes { Action::Change(&user, &agent) } else { Action::Read(&user, &agent) })?;
    admitted(app)?;
    let tree = match skill {
        Some(skill) => TreeId::Skill(user, agent, skill),
        None => TreeId::Workspace(user, agent),
    };
    let backend = parts.extensions.get::<Lent>().map(Lent::backend).transpose()?;
    Ok(Allowed { tree, role, backend })
}

/// A request about a sandbox as a whole, which is no use of it: looking for `GET`, removing otherwise.
pub(super) struct SandboxRequest {
    pub(super) id: SandboxId,
}

impl FromRequestParts<App> for SandboxRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let Allowed { tree, .. } = allowed_tree(parts, app, !reads).await?;
        Ok(Self { id: SandboxId::of(&tree) })
    }
}

/// A request about the sandboxes of one user, or of all.
pub(super) struct SandboxesRequest {
    pub(super) user: Option<UserId>,
}

impl FromRequestParts<App> for SandboxesRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Caller { role, .. } = caller(&app.access, &parts.headers)?;
        let (user, ..) = named(parts, app).await?;
        user.as_ref().inspect(|user| facts::user(user));
        role.may(match (&user, &parts.method) {
            (Some(user), _) => Action::OfUser(user),
            (None, &Method::GET | &Method::HEAD) => Action::SeeAll,
            (None, _) => Action::RemoveAll,
        })?;
        admitted(app)?;
        Ok(Self { user })
    }
}

/// A request about a snapshot of a workspace.
pub(super) struct SnapshotRequest {
    pub(super) sandbox: SandboxId,
    pub(super) id: SnapshotId,
    role: Role,
}

impl SnapshotRequest {
    /// Checks that the caller may change another workspace too.
    pub(super) fn check_change(&self, to: &SandboxId) -> Result<(), Problem> {
        facts::fork(&to.user, &to.agent);
        Ok(self.role.may(Action::Change(&to.user, &to.agent))?)
    }
}

impl FromRequestParts<App> for SnapshotRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let Allowed { tree, role, .. } = allowed_tree(parts, app, !reads).await?;
        let sandbox = SandboxId::of(&tree);
        app.service.note_use(sandbox.clone()).await?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params = params.map_err(|_| Problem::invalid("the path is not percent-encoded UTF-8"))?;
        let text = params.iter().find(|(name, _)| *name == "snapshot").map_or("", |(_, value)| value);
        let id = SnapshotId::parse(text).ok_or_else(|| {
            Problem::invalid("the id of a snapshot has 20 digits: send one that `snapshots` lists")
        })?;
        facts::snapshot(&id);
        Ok(Self { sandbox, id, role })
    }
}

/// A request that changes one tree whatever its method is, such as one for a terminal.
pub(super) struct ChangingRequest {
    pub(super) id: TreeId,
}

impl FromRequestParts<App> for ChangingRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Ok(Self { id: used_tree(parts, app, true).await?.tree })
    }
}

/// A request for one run of a tree, by somebody who may ask for it.
pub(super) struct NamedRun {
    pub(super) tree: TreeId,
    pub(super) id: ExecId,
}

impl FromRequestParts<App> for NamedRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let TreeRequest { id: tree, .. } = TreeRequest::from_request_parts(parts, app).await?;
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params = params.map_err(|_| Problem::invalid("the path is not percent-encoded UTF-8"))?;
        let name = params.iter().find(|(name, _)| *name == "exec_id").map_or("", |(_, value)| value);
        let id = ExecId::parse(name)?;
        facts::run(&id);
        Ok(Self { tree, id })
    }
}

impl FromRequestParts<App> for TreeQuestion {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Ok(Self { id: used_tree(parts, app, false).await?.tree })
    }
}

/// A request about skills of one user and agent; what it may do depends on the scope.
pub(super) struct SkillsRequest {
    pub(super) user: UserId,
    pub(super) agent: AgentId,
    pub(super) skill: Option<SkillId>,
    role: Role,
}

impl SkillsRequest {
    pub(super) fn check_read(&self) -> Result<(), Problem> {
        Ok(self.role.may(Action::Read(&self.user, &self.agent))?)
    }

    pub(super) fn check_change(&self, scope: Scope) -> Result<(), Problem> {
        facts::scope(scope);
        Ok(self.role.may(match scope {
            Scope::Baseline => Action::Baseline(&self.user, &self.agent),
            Scope::Overlay => Action::Change(&self.user, &self.agent),
        })?)
    }
}

impl FromRequestParts<App> for SkillsRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Caller { role, .. } = caller(&app.access, &parts.headers)?;
        let (Some(user), Some(agent), skill) = named(parts, app).await? else {
            return Err(Problem::invalid("the path names no user and agent"));
        };
        facts::skills(&user, &agent, skill.as_ref());
        admitted(app)?;
        Ok(Self { user, agent, skill, role })
    }
}

/// A caller with any valid token.
pub(super) struct Known;

impl FromRequestParts<App> for Known {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers).map(|_| Self)
    }
}

/// A caller with any valid token, and who it is: what is sent depends on it.
pub(super) struct Someone(pub(super) Caller);

impl FromRequestParts<App> for Someone {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers).map(Self)
    }
}

/// A caller who may have the registry made anew.
pub(super) struct Rebuilder;

impl FromRequestParts<App> for Rebuilder {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Rebuild)?;
        admitted(app)?;
        Ok(Self)
    }
}

/// A caller who may issue tokens.
pub(super) struct Issuer;

impl FromRequestParts<App> for Issuer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Issue)?;
        admitted(app)?;
        Ok(Self)
    }
}

/// A caller who may read figures about the service.
pub(super) struct Observer;

impl FromRequestParts<App> for Observer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        caller(&app.access, &parts.headers)?.role.may(Action::Observe)?;
        Ok(Self)
    }
}

/// Query parameters; an unknown one is refused, so that a misspelt `end` does not replace a whole file.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if !is_utf8(parts.uri.query().unwrap_or_default()) {
            return Err(Problem::invalid("the query is not percent-encoded UTF-8"));
        }
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(QueryRejection::FailedToDeserializeQueryString(rejection)) => {
                Err(Problem::invalid(format!("the query is wrong: {}", innermost(&rejection))))
            }
            Err(other) => Err(Problem::invalid(other.to_string())),
        }
    }
}

/// A request without query parameters: none is known, and any is refused.
pub(super) struct NoParams;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl FromRequestParts<App> for NoParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Params::<Nothing>::from_request_parts(parts, app).await.map(|_| Self)
    }
}

/// Tells whether a query decodes to UTF-8. Its reader would put U+FFFD for what does not, and so name another file.
fn is_utf8(query: &str) -> bool {
    let mut rest = query.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.split_at_checked(2).filter(|_| *byte == b'%');
        let octet = digits.and_then(|(digits, after)| Some((hexadecimal(digits)?, after)));
        let (octet, after) = octet.unwrap_or((*byte, after));
        decoded.push(octet);
        rest = after;
    }
    std::str::from_utf8(&decoded).is_ok()
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u8::from_str_radix(text, 16).ok()
}

/// What a route takes as JSON, and how much of it.
pub(super) trait JsonLimit {
    /// Largest body, in bytes.
    fn bytes_max(_app: &App) -> usize {
        JSON_BYTES_MAX
    }
}

/// A JSON body that is an object, as large as its route takes one, whatever its `Content-Type` says.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned + JsonLimit + Send + 'static> FromRequest<App> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let bytes = body::collect(app, request.into_body(), T::bytes_max(app)).await?;
        let length = bytes.len();
        let read = move || parse_json(&bytes).map(|Object(value)| Self(value));
        if length < LARGE_JSON_BYTES {
            return read();
        }
        let job = Job::about(facts::user_of().as_ref(), Weight::Light);
        app.service.admission.work(job, move || Ok(read())).await?
    }
}

/// Reads JSON from the bytes of a body.
pub(super) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let parsed = axum::Json::<T>::from_bytes(bytes);
    match parsed {
        Ok(axum::Json(value)) => Ok(value),
        Err(JsonRejection::JsonDataError(rejection)) => {
            Err(Problem::invalid(format!("the body is wrong: {}", innermost(&rejection))))
        }
        Err(JsonRejection::JsonSyntaxError(rejection)) => {
            Err(Problem::invalid(format!("the body is no JSON: {}", innermost(&rejection))))
        }
        Err(other) => Err(Problem::invalid(other.to_string())),
    }
}

/// The message that says what to change, without the layers around it.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        innermost = inner.to_string();
        source = inner.source();
    }
    innermost
}

/// Reads the path of something in a tree, which must be there.
///
/// The tree itself is no such thing: a workspace or skill is never written, moved or removed as a file.
pub(super) fn path_of(id: &TreeId, text: Option<&str>) -> Result<RelPath, Problem> {
    let text = text.ok_or_else(|| Problem::invalid("the parameter `path` is missing"))?;
    let path = id.resolve(text)?;
    if path.is_root() {
        return Err(Problem::invalid(format!("`{text}` is the tree itself: name a file or directory in it")));
    }
    facts::path(&path);
    Ok(path)
}

/// Reads the parameter `path` of a directory; absent or empty, it is the tree itself.
pub(super) fn dir_of(id: &TreeId, text: Option<&str>) -> Result<RelPath, Problem> {
    match text {
        None | Some("") => Ok(RelPath::root()),
        Some(text) => Ok(id.resolve(text)?),
    }
}

/// Reads a parameter that is a word with a meaning of its own.
pub(super) fn word<T>(text: Option<&str>) -> Result<T, Problem>
where
    T: FromStr + Default,
    T::Err: std::fmt::Display,
{
    text.map_or_else(
        || Ok(T::default()),
        |text| text.parse().map_err(|error: T::Err| Problem::invalid(error.to_string())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_decodes_to_no_utf8_is_noticed() {
        for good in ["", "path=a", "path=%E6%95%B0", "a=%", "a=%4", "a=%zz", "a=100%25&b=+"] {
            assert!(is_utf8(good), "{good}");
        }
        for bad in ["path=%ff", "path=%E6%95", "%c0%af=1"] {
            assert!(!is_utf8(bad), "{bad}");
        }
    }
}
