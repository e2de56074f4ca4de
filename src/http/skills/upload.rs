//! `POST /v1/skills/{u}/{a}/upload?scope&charset&dry_run&current&title&message`

use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::header;
use futures_util::StreamExt;
use policy::{Scope, UserId};
use serde::{Deserialize, Serialize};
use storage::archive::{Charset, Skipped};

use super::{file_name, form};
use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::answer::{Answer, success_with};
use crate::http::extract::body::broken;
use crate::http::extract::spooled::{check_announced, spool};
use crate::http::extract::{Params, SkillsRequest, word};
use crate::http::request_log;
use crate::ops::upload::{Archive, Intake, Taking, Uploaded, UploadedSkill};
use crate::ops::versions::Publisher;

/// Archives in one request.
const ARCHIVES_MAX: usize = 32;
/// Characters of a description in the answer; the whole is in the list of skills.
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Doubts in one answer.
const DOUBTFUL_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    scope: Option<String>,
    charset: Option<String>,
    #[serde(default)]
    dry_run: bool,
    /// Whether the uploaded version takes the place of the current one.
    #[serde(default = "yes")]
    current: bool,
    title: Option<String>,
    message: Option<String>,
}

fn yes() -> bool {
    true
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
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
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
            number: published.number,
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
    let is_plain = query.current && query.title.is_none() && query.message.is_none();
    if scope == Scope::Overlay && !is_plain {
        return Err(Problem::invalid(
            "`current`, `title` and `message` are for versions of the application: send `scope=baseline`",
        ));
    }
    let publisher = Publisher::new(skills.subject.clone(), query.title, query.message)?;
    let publisher = publisher.staging(!query.current);
    let archives = receive(&app, &skills.user, request).await?;
    let place = match scope {
        Scope::Baseline => format!("baseline/{}", skills.agent),
        Scope::Overlay => format!("overlay/{}/{}", skills.user, skills.agent),
    };
    let SkillsRequest { user, agent, .. } = skills;
    let intake = Intake { scope, charset, publisher, is_rehearsal: query.dry_run, taking: Taking::All };
    let uploaded = app.service.upload(intake, user, agent, archives).await?;
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
    let mut left = app.service.archive_limits().upload_bytes;
    if !is_form {
        check_announced(request.headers(), left)?;
        let stream = request.into_body().into_data_stream().map(|chunk| chunk.map_err(|_| broken()));
        return Ok(vec![Archive { spool: spool(app, user, stream, &mut left).await?, file_name: None }]);
    }
    let (request, undelivered) = form::in_doses(request);
    let mut form = Multipart::from_request(request, app)
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
