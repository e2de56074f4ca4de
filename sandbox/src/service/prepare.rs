//! Preparing a workspace, and the packages that are deployed there: what the service has besides the trait.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use policy::VersionId;
use serde::{Deserialize, Serialize};

use super::ServiceSandbox;
use super::address::Place;
use super::http::{document, success};
use super::upload::Upload;
use crate::{ByteStream, Result, SandboxPath, UserId};

/// How long a round may take in the service, and a while more.
const PATIENCE: Duration = Duration::from_secs(3_700);

/// What a workspace is to be brought to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PrepareRequest {
    /// The purpose of the round.
    pub mode: PrepareMode,
    /// The selected versions of skills, in the order in which their scripts run.
    pub skills: Vec<SelectedVersion>,
    /// A script for bash, which runs once for each of its texts; empty for none.
    pub entrypoint: String,
    /// Files for `user_files`.
    pub files: Vec<SentFile>,
    /// Names of steps of the service's configuration.
    pub bootstrap: Vec<String>,
    /// The time of each script; `None` for the service's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
}

/// The purpose of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PrepareMode {
    /// A conversation with selected skills.
    #[default]
    Run,
    /// A call of a tool: no skills are deployed or removed.
    ToolCall,
    /// A preview: nothing runs, and the whole workspace is looked through.
    EditDebug,
}

/// A version of a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SelectedVersion {
    /// The id of the skill.
    pub skill_id: String,
    /// The id of the version.
    pub version_id: String,
}

/// A file that is sent along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SentFile {
    /// The last part of a path in it becomes the name.
    pub name: String,
    /// The content.
    #[serde(rename = "content_base64", serialize_with = "in_base64")]
    pub bytes: Bytes,
}

/// A workspace that is ready.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PreparedWorkspace {
    /// The directory in which commands run, as they see it.
    pub workdir: Option<String>,
    /// The skills that are there.
    pub skills: Vec<PreparedSkill>,
    /// What became of each step, in order.
    pub steps: Vec<PreparedStep>,
}

/// A skill that is in a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PreparedSkill {
    /// The path of its `SKILL.md`, which no other skill has.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its description; may be empty.
    pub description: String,
    /// The directory of its `SKILL.md`.
    pub directory: String,
    /// The path of its `SKILL.md`.
    pub skill_md_path: String,
    /// The version that it came with.
    pub version_id: Option<String>,
    /// The skill that the version is of.
    pub skill_id: Option<String>,
}

/// The end of a step.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PreparedStep {
    /// Such as `deploy` or `entrypoint`.
    pub name: String,
    /// `done`, `skipped`, `failed` or `timed_out`.
    pub outcome: String,
    /// How long it took.
    pub duration_ms: u64,
    /// What it has to say.
    pub log: String,
}

fn in_base64<S: serde::Serializer>(bytes: &Bytes, into: S) -> std::result::Result<S::Ok, S::Error> {
    use base64::Engine;
    into.serialize_str(&base64::engine::general_purpose::STANDARD.encode(bytes))
}

impl ServiceSandbox {
    /// Brings the user's workspace to the state that a round of a conversation needs.
    ///
    /// The round goes on when the future is dropped.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while the workspace is initialising: try again later. Else as the operations on files, when
    /// a version cannot be deployed or a file not be written.
    pub async fn prepare(&self, user: &UserId, request: &PrepareRequest) -> Result<PreparedWorkspace> {
        const OPERATION: &str = "prepare";
        let http = self.http(OPERATION)?;
        let workspace = SandboxPath::workspace();
        let place = Place::of(user, &self.options.agent, false, OPERATION, &workspace)?;
        let Place::InTree(address) = place else {
            return Err(crate::Error::about(crate::ErrorKind::Internal, OPERATION, &workspace));
        };
        http.post(OPERATION, &format!("{}/prepare", address.tree), request, PATIENCE).await
    }

    /// Has the service keep an archive as the package of a version. The same bytes again are fine.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists) when the version has other bytes, [`Invalid`](crate::ErrorKind::Invalid) when the archive is
    /// refused, [`PermissionDenied`](crate::ErrorKind::PermissionDenied) for a token of a user.
    pub async fn put_package(&self, version: &VersionId, archive: ByteStream) -> Result<()> {
        const OPERATION: &str = "put_package";
        let http = self.http(OPERATION)?;
        let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
        let upload = Upload::new(archive, &SandboxPath::workspace());
        let response = http.upload(OPERATION, &format!("/v1/packages/{version}"), &headers, upload).await?;
        document::<String>(OPERATION, success(OPERATION, response).await?).await.map(drop)
    }
}
