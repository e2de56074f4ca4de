//! `POST /v1/sandbox/{u}/{a}/prepare?stream`

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::http::answer::problem::Problem;
use crate::http::answer::streamed::{Form, PULSE};
use crate::http::answer::{Answer, success};
use crate::http::extract::object::{Object, Word};
use crate::http::extract::{JsonBody, JsonLimit, Params, PreparingRequest};
use crate::http::{App, request_log};
use crate::ops;
use crate::ops::preparations::Wanted;
use crate::ops::prepare::{
    InputFile, Mode, Preparation, Prepared, Progress, Selected, SkillInfo, Step, deadline,
};

/// Versions, files and steps of one request.
const SKILLS_MAX: usize = 100;
const FILES_MAX: usize = 100;
const STEPS_MAX: usize = 32;
/// Characters of a script, as the platforms that send one bound it.
const SCRIPT_CHARACTERS_MAX: usize = 16 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    #[serde(default)]
    stream: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Asked {
    #[serde(default)]
    mode: Word<Mode>,
    #[serde(default)]
    skills: Vec<Object<Version>>,
    #[serde(default)]
    entrypoint: Option<String>,
    #[serde(default)]
    files: Vec<Object<File>>,
    #[serde(default)]
    bootstrap: Vec<String>,
    #[serde(default)]
    timeout_seconds: Option<i64>,
    #[serde(default = "needed")]
    runtime: bool,
}

fn needed() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version {
    skill_id: String,
    version_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    content_base64: Option<String>,
}

impl JsonLimit for Asked {
    fn bytes_max(app: &App) -> usize {
        usize::try_from(app.service.file_limits().text_bytes).unwrap_or(usize::MAX)
    }
}

/// A workspace that is ready.
#[derive(Serialize)]
struct Ready {
    /// None when no runtime is needed.
    workdir: Option<String>,
    skills: Vec<SkillInfo>,
    steps: Vec<Step>,
}

impl From<Prepared> for Ready {
    fn from(Prepared { workdir, skills, steps }: Prepared) -> Self {
        Self { workdir: Some(workdir), skills, steps }
    }
}

/// One event of a stream.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Told {
    /// A step begins.
    Step { name: String },
    /// A step goes on: so many of its parts are done.
    Progress { name: String, done: usize, of: usize },
    /// A step has ended.
    StepEnded { step: Step },
    /// The last one: the workspace is ready.
    Prepared { result: Ready },
    /// The last one: it is not.
    Failed { code: &'static str, data: String },
}

type Ending = Pin<Box<dyn Future<Output = ops::Result<Prepared>> + Send>>;

/// A preparation that is told as it goes on.
struct Sending {
    form: Form,
    progress: mpsc::UnboundedReceiver<Progress>,
    /// `None` once its end is known.
    ending: Option<Ending>,
    /// What is still to be told.
    result: Option<ops::Result<Prepared>>,
    /// What was heard before the stream began.
    first: Option<Progress>,
}

pub(in crate::http) async fn prepare(
    State(app): State<App>,
    request: PreparingRequest,
    Params(query): Params<Query>,
    headers: HeaderMap,
    JsonBody(asked): JsonBody<Asked>,
) -> Answer {
    let runtime = asked.runtime;
    let form = match Form::of(&headers) {
        // A stream that is asked for in no form.
        Form::Document if query.stream => Form::Lines,
        form => form,
    };
    let bootstrap = asked.bootstrap.clone();
    let preparation = preparation(&app, asked)?;
    let PreparingRequest { tree, deploying } = request;
    if !runtime {
        return success(Ready { workdir: None, skills: Vec::new(), steps: Vec::new() });
    }
    // A preparation that fails may have changed something, too.
    request_log::program("bash");
    let (listener, progress) = if form.is_stream() {
        let (listener, progress) = mpsc::unbounded_channel();
        (Some(listener), Some(progress))
    } else {
        (None, None)
    };
    let wanted = Wanted { preparation, bootstrap, deploying, listener };
    let ending = async move { tree.prepare(wanted).await };
    match progress {
        None => success(Ready::from(ending.await?)),
        Some(progress) => Sending::begin(form, progress, Box::pin(ending)).await,
    }
}

/// Reads and bounds what was asked for.
fn preparation(app: &App, asked: Asked) -> Result<Preparation, Problem> {
    let Asked { mode, skills, entrypoint, files, bootstrap, timeout_seconds, .. } = asked;
    let bounded = |what: &str, number: usize, most: usize| match number > most {
        true => Err(Problem::invalid(format!("there are {number} {what}: send {most} at most"))),
        false => Ok(()),
    };
    bounded("`skills`", skills.len(), SKILLS_MAX)?;
    bounded("`files`", files.len(), FILES_MAX)?;
    bounded("steps of `bootstrap`", bootstrap.len(), STEPS_MAX)?;
    let entrypoint = entrypoint.unwrap_or_default();
    if entrypoint.chars().nth(SCRIPT_CHARACTERS_MAX).is_some() {
        let advice = format!(
            "`entrypoint` has more than {SCRIPT_CHARACTERS_MAX} characters: put the script into a package, or send it among `files`"
        );
        return Err(Problem::invalid(advice));
    }
    if entrypoint.contains('\0') {
        return Err(Problem::invalid("`entrypoint` has a NUL character: no shell reads it"));
    }
    let version = |Object(Version { skill_id, version_id })| Selected { skill_id, version_id };
    let files: Result<Vec<InputFile>, Problem> = files.into_iter().map(|Object(file)| file.read()).collect();
    Ok(Preparation {
        mode: mode.0,
        skills: skills.into_iter().map(version).collect(),
        entrypoint,
        files: files?,
        deadline: deadline(timeout_seconds.unwrap_or_else(|| app.service.preparations().timeout_seconds())),
    })
}

impl File {
    fn read(self) -> Result<InputFile, Problem> {
        let bytes = match (self.content, self.content_base64) {
            (Some(text), None) => Bytes::from(text),
            (None, Some(base64)) => {
                let decoded = STANDARD.decode(base64);
                decoded.map(Bytes::from).map_err(|error| {
                    Problem::invalid(format!("`content_base64` of a file is not base64: {error}"))
                })?
            }
            _ => return Err(Problem::invalid("send `content` or `content_base64` of each file")),
        };
        Ok(InputFile { name: self.name, bytes })
    }
}

impl Sending {
    /// Answers with a stream. What fails before the first step is a failure of the request, with its status.
    async fn begin(
        form: Form,
        mut progress: mpsc::UnboundedReceiver<Progress>,
        mut ending: Ending,
    ) -> Answer {
        let sending = tokio::select! {
            biased;
            Some(first) = progress.recv() => {
                Self { form, progress, ending: Some(ending), result: None, first: Some(first) }
            }
            ended = &mut ending => {
                Self { form, progress, ending: None, result: Some(Ok(ended?)), first: None }
            }
        };
        let body = Body::from_stream(stream::unfold(sending, |mut sending| async move {
            let piece = sending.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(piece)), sending))
        }));
        Ok(form.response(body))
    }

    /// The next piece of the body; `None` at its end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let mut piece = Vec::new();
        if let Some(told) = self.first.take() {
            self.write(Told::of(told), &mut piece);
            return Some(piece);
        }
        if let Some(ending) = &mut self.ending {
            tokio::select! {
                biased;
                Some(told) = self.progress.recv() => {
                    self.write(Told::of(told), &mut piece);
                    return Some(piece);
                }
                ended = ending => (self.ending, self.result) = (None, Some(ended)),
                () = tokio::time::sleep(PULSE) => return Some(self.form.pulse().to_vec()),
            }
        }
        let told = match self.result.take()? {
            Ok(prepared) => Told::Prepared { result: prepared.into() },
            Err(error) => Told::failed(error.into()),
        };
        self.write(told, &mut piece);
        Some(piece)
    }

    fn write(&self, told: Told, into: &mut Vec<u8>) {
        let name = match &told {
            Told::Step { .. } => "step",
            Told::Progress { .. } => "progress",
            Told::StepEnded { .. } => "step_ended",
            Told::Prepared { .. } => "prepared",
            Told::Failed { .. } => "failed",
        };
        self.form.write(name, None::<&str>, &told, into);
    }
}

impl Told {
    fn of(progress: Progress) -> Self {
        match progress {
            Progress::Started(name) => Self::Step { name },
            Progress::Advanced { name, done, of } => Self::Progress { name, done, of },
            Progress::Ended(step) => Self::StepEnded { step },
        }
    }

    fn failed(problem: Problem) -> Self {
        let (code, data) = problem.into_words();
        Self::Failed { code, data }
    }
}
