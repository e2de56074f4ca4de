//! `POST /v1/skills/{u}/{a}/upload?scope&charset&dry_run`

use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::header;
use futures_util::StreamExt;
use policy::{Scope, UserId};
use serde::{Deserialize, Serialize};
use storage::Spool;
use storage::archive::{Charset, Skipped};

use super::{file_name, form};
use crate::http::App;
use crate::http::answer::{Answer, success_with};
use crate::http::body::broken;
use crate::http::extract::{Params, SkillsRequest, word};
use crate::http::problem::Problem;
use crate::http::request_log;
use crate::ops::upload::{Archive, Uploaded, UploadedSkill};

/// Archives in one request.
const ARCHIVES_MAX: usize = 32;
/// Characters of a description in the answer; the whole is in the list of skills.
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Doubts in one answer.
const DOUBTFUL_MAX: usize = 100;
/// Bytes collected before they are written at once.
const WRITE_BYTES: usize = 512 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    scope: Option<String>,
    charset: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Beside {
    result: Outcome,
}

#[derive(Serialize)]
struct Outcome {
    scope: Scope,
    dry_run: bool,
    skills: Vec<Published>,
    charset: Vec<&'static str>,
    skipped: Vec<Skipped>,
    skipped_total: usize,
    doubtful: Vec<Doubt>,
    doubtful_total: usize,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Published {
    skill_id: String,
    name: String,
    description: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<String>,
    version: String,
    files: usize,
    bytes: u64,
    replaced: bool,
    unchanged: bool,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Doubt {
    skill_id: String,
    path: String,
    doubt: String,
}

impl From<UploadedSkill> for Published {
    fn from(UploadedSkill { published, planned }: UploadedSkill) -> Self {
        Self {
            skill_id: published.skill.into(),
            name: planned.metadata.name,
            description: planned.metadata.description.chars().take(DESCRIPTION_CHARS_MAX).collect(),
            path: planned.path,
            plugin: planned.plugin,
            version: published.version.into(),
            files: planned.files,
            bytes: planned.bytes,
            replaced: published.replaced,
            unchanged: published.unchanged,
            warnings: planned.metadata.warnings,
        }
    }
}

pub(in crate::http) async fn upload(
    State(app): State<App>,
    skills: SkillsRequest,
    Params(query): Params<Query>,
    request: Request,
) -> Answer {
    let scope: Scope = word(query.scope.as_deref())?;
    let charset: Charset = word(query.charset.as_deref())?;
    if query.dry_run {
        // Before anything is refused: the record of a refused rehearsal is one of a rehearsal.
        request_log::dry_run();
    }
    skills.check_change(scope)?;
    let archives = receive(&app, &skills.user, request).await?;
    let place = match scope {
        Scope::Baseline => format!("baseline/{}", skills.agent),
        Scope::Overlay => format!("overlay/{}/{}", skills.user, skills.agent),
    };
    let SkillsRequest { user, agent, subject, .. } = skills;
    let uploaded = if query.dry_run {
        app.service.rehearse_upload(scope, user, agent, charset, archives).await?
    } else {
        app.service.upload(subject, scope, user, agent, charset, archives).await?
    };
    answer(scope, query.dry_run, &place, uploaded)
}

fn answer(scope: Scope, dry_run: bool, place: &str, uploaded: Uploaded) -> Answer {
    let one = |skill: &UploadedSkill| {
        let skill = &skill.published.skill;
        format!("skill '{skill}' to '{place}/{skill}'")
    };
    let message: Vec<String> = uploaded.skills.iter().map(one).collect();
    let doubts = uploaded.skills.iter().flat_map(|skill| {
        let planned = &skill.planned;
        planned.doubts.iter().map(|doubt| Doubt {
            skill_id: planned.id.to_string(),
            path: planned.path.clone(),
            doubt: doubt.clone(),
        })
    });
    let result = Outcome {
        scope,
        dry_run,
        doubtful_total: doubts.clone().count(),
        doubtful: doubts.take(DOUBTFUL_MAX).collect(),
        skills: uploaded.skills.into_iter().map(Published::from).collect(),
        charset: uploaded.charsets.into_iter().map(|charset| charset.as_str()).collect(),
        skipped: uploaded.skipped,
        skipped_total: uploaded.skipped_total,
        warnings: uploaded.warnings,
    };
    let done = if dry_run { "Dry run, nothing was uploaded" } else { "Upload successful" };
    success_with(format!("{done}: {}", message.join(", ")), Beside { result })
}

/// Receives the archives of a request: the parts named `file` of a form, or the body itself.
async fn receive(app: &App, user: &UserId, request: Request) -> Result<Vec<Archive>, Problem> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_form =
        content_type.is_some_and(|value| value.to_ascii_lowercase().starts_with("multipart/form-data"));
    let mut left = app.service.archive_limits.upload_bytes;
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if !is_form && announced.and_then(|value| value.parse().ok()).is_some_and(|bytes: u64| bytes > left) {
        return Err(Problem::too_large("the upload", left));
    }
    if !is_form {
        let stream = request.into_body().into_data_stream().map(|chunk| chunk.map_err(|_| broken()));
        return Ok(vec![Archive { spool: spool(app, user, stream, &mut left).await?, file_name: None }]);
    }
    let (parts, body) = request.into_parts();
    let (body, undelivered) = form::in_doses(body);
    let mut form = Multipart::from_request(Request::from_parts(parts, body), app)
        .await
        .map_err(|error| Problem::invalid(format!("the form cannot be read: {}", error.body_text())))?;
    let mut archives = Vec::new();
    loop {
        let part = form.next_field().await;
        let part = part
            .map_err(|error| Problem::invalid(format!("the form cannot be read: {}", error.body_text())))?;
        let Some(part) = part else { break };
        if part.name() != Some("file") {
            let name = part.name().unwrap_or_default().chars().take(64).collect::<String>();
            return Err(Problem::invalid(format!(
                "the form has a part `{name}`: name each archive's part `file`"
            )));
        }
        if archives.len() >= ARCHIVES_MAX {
            return Err(Problem::invalid(format!(
                "the form has more than {ARCHIVES_MAX} archives: send several"
            )));
        }
        let file_name = file_name::of(part.headers());
        let stream = part.map(|chunk| {
            undelivered.clear();
            chunk.map_err(|_| broken())
        });
        archives.push(Archive { spool: spool(app, user, stream, &mut left).await?, file_name });
    }
    if archives.is_empty() {
        return Err(Problem::invalid(
            "the form has no part `file`: send the archive as `-F file=@skill.zip`",
        ));
    }
    Ok(archives)
}

/// Writes a stream to a spool of `user`, counting down the bytes `left`.
async fn spool(
    app: &App,
    user: &UserId,
    stream: impl futures_util::Stream<Item = Result<bytes::Bytes, Problem>>,
    left: &mut u64,
) -> Result<Spool, Problem> {
    let limit = app.service.archive_limits.upload_bytes;
    let (store, owner) = (app.service.store.clone(), user.clone());
    let mut spool = app.service.light(user, move || Ok(store.spool(&owner)?)).await?;
    let mut stream = std::pin::pin!(stream);
    let mut pending = Vec::new();
    loop {
        let chunk = stream.next().await.transpose()?;
        let is_last = chunk.is_none();
        if let Some(chunk) = chunk {
            let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            *left = left.checked_sub(bytes).ok_or_else(|| Problem::too_large("the upload", limit))?;
            pending.extend_from_slice(&chunk);
        }
        if pending.len() >= WRITE_BYTES || (is_last && !pending.is_empty()) {
            let bytes = std::mem::take(&mut pending);
            let written = app.service.light(user, move || {
                spool.write(&bytes)?;
                Ok(spool)
            });
            spool = written.await?;
        }
        if is_last {
            return Ok(spool);
        }
    }
}
