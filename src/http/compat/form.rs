//! The files of a skill, as forms bring them: one part a file, or one part with an archive.

use std::collections::HashSet;

use axum::body::Bytes;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::header;
use policy::UserId;
use storage::{Gathered, Gathering, OnlyFile};

use crate::http::App;
use crate::http::answer::problem::Problem;
use crate::http::extract::body::broken;
use crate::http::skills::{file_name, form};
use crate::ops::upload::Archive;

/// The names of parts that bring files.
const FILES: [&str; 3] = ["files[]", "files", "file"];
/// The names of parts that bring a title.
const TITLES: [&str; 2] = ["display_name", "display_title"];
/// The name of the part that says whether a version is to be in force.
const DEFAULT: &str = "default";
/// Bytes collected before they are written at once.
const WRITE_BYTES: usize = 512 * 1024;
/// Longest text of a part that is no file, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// What a form brought.
pub(super) struct Sent {
    pub(super) archive: Archive,
    /// The title, if there is one.
    pub(super) title: Option<String>,
    /// Whether the version is to be in force, where a client says so.
    pub(super) is_default: bool,
}

/// What is to be written next.
enum Step {
    Begin(String),
    Write(Bytes),
}

/// Files on their way into a spool.
struct Writing<'a> {
    app: &'a App,
    account: &'a UserId,
    gathered: Gathered,
    steps: Vec<Step>,
    bytes: usize,
}

impl Writing<'_> {
    async fn add(mut self, step: Step) -> Result<Self, Problem> {
        self.bytes += match &step {
            Step::Begin(name) => name.len() + WRITE_BYTES / 1024,
            Step::Write(bytes) => bytes.len(),
        };
        self.steps.push(step);
        if self.bytes >= WRITE_BYTES { self.flush().await } else { Ok(self) }
    }

    /// Writes what was collected, off the runtime.
    async fn flush(self) -> Result<Self, Problem> {
        let Self { app, account, mut gathered, steps, .. } = self;
        let written = app.service.light(account, move || {
            for step in steps {
                match step {
                    Step::Begin(name) => gathered.begin(&name)?,
                    Step::Write(bytes) => gathered.write(&bytes)?,
                }
            }
            Ok(gathered)
        });
        let gathered = written.await?;
        Ok(Self { app, account, gathered, steps: Vec::new(), bytes: 0 })
    }

    async fn finish(self) -> Result<Archive, Problem> {
        let Self { app, account, gathered, .. } = self.flush().await?;
        let gathering = app.service.light(account, move || Ok(gathered.finish()?)).await?;
        let only: OnlyFile = match gathering {
            Gathering::Files(spool, _) => return Ok(Archive { spool, file_name: None }),
            Gathering::Archive(only) => only,
        };
        let (name, mut spool) = (only.name().to_owned(), app.service.spool(account).await?);
        let copied = app.service.light(account, move || {
            only.copy_to(&mut spool)?;
            Ok(spool)
        });
        Ok(Archive { spool: copied.await?, file_name: Some(name) })
    }
}

/// Receives the form of a request, for the account of `account`.
pub(super) async fn receive(app: &App, account: &UserId, request: Request) -> Result<Sent, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("multipart/form-data")) {
        return Err(Problem::invalid("the request has no files: send a form with the parts `files[]`"));
    }
    let limits = app.service.archive_limits();
    let (limit, files_max) = (limits.upload_bytes, limits.entries);
    let (mut left, mut passed_over) = (limit, 0_u64);
    let (request, undelivered) = form::in_doses(request);
    let unreadable = |error: &str| Problem::invalid(format!("the form cannot be read: {error}"));
    let mut form =
        Multipart::from_request(request, app).await.map_err(|error| unreadable(&error.body_text()))?;
    let gathered = Gathered::new(app.service.spool(account).await?);
    let mut writing = Writing { app, account, gathered, steps: Vec::new(), bytes: 0 };
    let (mut title, mut is_default, mut files) = (None, false, 0);
    let mut flat = HashSet::new();
    while let Some(mut part) = form.next_field().await.map_err(|error| unreadable(&error.body_text()))? {
        let name = part.name().unwrap_or_default().to_owned();
        match file_name::of(part.headers()).filter(|_| FILES.contains(&name.as_str())) {
            Some(file_name) => {
                files += 1;
                if files > files_max {
                    return Err(Problem::invalid(format!("the form has more than {files_max} files")));
                }
                // Some clients leave directories out.
                if !file_name.contains('/') && !flat.insert(file_name.clone()) {
                    return Err(Problem::invalid(format!(
                        "two files have the name `{file_name}`: send names with directories, or a ZIP"
                    )));
                }
                writing = writing.add(Step::Begin(file_name)).await?;
                while let Some(chunk) = part.chunk().await.map_err(|_| broken())? {
                    undelivered.clear();
                    left = u64::try_from(chunk.len())
                        .ok()
                        .and_then(|bytes| left.checked_sub(bytes))
                        .ok_or_else(|| Problem::too_large("the upload", limit))?;
                    writing = writing.add(Step::Write(chunk)).await?;
                }
            }
            // A part that means nothing here is passed over: clients send such, one of them a copy of every file.
            None => {
                let mut text = Vec::new();
                while let Some(chunk) = part.chunk().await.map_err(|_| broken())? {
                    undelivered.clear();
                    passed_over = passed_over
                        .checked_add(chunk.len() as u64)
                        .filter(|bytes| *bytes <= limit)
                        .ok_or_else(|| Problem::too_large("the text of the form", limit))?;
                    text.extend_from_slice(&chunk);
                    if text.len() > TEXT_BYTES_MAX && (TITLES.contains(&name.as_str()) || name == DEFAULT) {
                        return Err(Problem::too_large(&format!("`{name}`"), TEXT_BYTES_MAX as u64));
                    }
                    text.truncate(TEXT_BYTES_MAX);
                }
                let text = String::from_utf8_lossy(&text).into_owned();
                match name.as_str() {
                    name if TITLES.contains(&name) => title = Some(text),
                    DEFAULT => is_default = text == "true",
                    _ => {}
                }
            }
        }
    }
    if files == 0 {
        return Err(Problem::invalid("the form has no file: send the parts `files[]`"));
    }
    Ok(Sent { archive: writing.finish().await?, title, is_default })
}
