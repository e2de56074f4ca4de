//! The files of the workspace and of skills as resources: pages of their names, and what is in one.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use policy::{RelPath, TreeId};
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, ListResourcesResult, MetaObject, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};
use sandbox::{ErrorKind, ReadOptions, SandboxPath};
use serde_json::{Map, Value, json};
use storage::tree::Walked;
use storage::{Kind, WorkspaceId};

use super::handler::Handler;
use super::{media, refusal, uri};
use crate::ops::admission::{Job, Weight};

/// Resources in one page.
const PAGE: usize = 500;
/// Skills whose `SKILL.md` files stand in the first page. What is beyond is counted.
const SKILLS: usize = 500;
/// Resources in all pages. What is beyond is counted.
const RESOURCES_MAX: usize = 10_000;
/// Largest file that is read, in bytes: 3 MiB, which are 4 MiB in base64.
const READ_BYTES_MAX: u64 = 3 << 20;
/// What the largest answer takes in memory for each byte of its file: the bytes, their text, and the message.
const COPIES: u64 = 4;
/// How many resources are left out of a list, in its `_meta`.
const LEFT_OUT: &str = "filesecbox/left-out";

/// A page of the files of a workspace.
struct Page {
    files: Vec<Walked>,
    next: Option<String>,
    left_out: usize,
}

impl Handler {
    /// The templates of all files.
    pub(super) fn templates() -> Vec<ResourceTemplate> {
        let [workspace, skill] = uri::TEMPLATES;
        vec![
            ResourceTemplate::new(workspace, "file")
                .with_description("A file of the workspace by its path, each segment percent-encoded"),
            ResourceTemplate::new(skill, "skill file").with_description(
                "A file of a skill by the skill and its path there, each segment percent-encoded",
            ),
        ]
    }

    /// A page: the `SKILL.md` files of the skills first, then the files of the workspace, sorted by path. Hidden ones are left out.
    pub(super) async fn resources(&self, cursor: Option<String>) -> Result<ListResourcesResult, ErrorData> {
        let after = cursor.map(|cursor| position(&cursor)).transpose()?;
        let (mut resources, skills_left) = match after {
            None => self.skill_resources(SKILLS).await?,
            Some(_) => (Vec::new(), 0),
        };
        let (user, agent) = (self.target.user.clone(), self.target.agent.clone());
        let service = &self.mcp.service;
        let listed = async {
            service.note_use(WorkspaceId { user: user.clone(), agent: agent.clone() }).await?;
            let tree = TreeId::Workspace(user.clone(), agent);
            let files = service.walk(tree, RelPath::root(), usize::MAX, true).await?;
            let job = Job::about(Some(&user), Weight::Scan);
            service.admission().work(job, move || Ok(page(files, after.as_deref()))).await
        };
        let page = listed.await.map_err(|error| refusal::of(&error))?;
        resources.extend(page.files.iter().map(resource));
        let mut result = ListResourcesResult::with_all_items(resources)
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private);
        let left_out = skills_left + if page.next.is_none() { page.left_out } else { 0 };
        if left_out > 0 {
            let left_out = Map::from_iter([(LEFT_OUT.to_owned(), Value::from(left_out))]);
            result.meta = Some(MetaObject::from(left_out));
        }
        result.next_cursor = page.next;
        Ok(result)
    }

    /// What is in a file.
    pub(super) async fn resource(&self, uri: String) -> Result<ReadResourceResult, ErrorData> {
        let path = self.file(&uri).await?.ok_or_else(|| refusal::no_resource(&uri))?;
        let user = &self.target.user;
        let sandbox = (self.mcp.workspaces)(self.mcp.service.clone(), self.target.agent.clone());
        let body = sandbox.read_file(user, &path, ReadOptions::default()).await;
        let body = body.map_err(|error| unread(&uri, &error))?;
        let size = body.info.size;
        if size > READ_BYTES_MAX {
            return Err(too_large(&uri, size));
        }
        let room = usize::try_from(size.saturating_mul(COPIES)).unwrap_or(usize::MAX);
        let room = self.mcp.service.admission().hold_bytes(Some(user), room).await;
        self.held.hold(room.map_err(|error| refusal::of(&error))?);
        let bytes = body.bytes().await.map_err(|error| unread(&uri, &error))?;
        let of_path = media::of_path(path.as_str());
        let contents = match std::str::from_utf8(&bytes) {
            Ok(text) if !text.contains('\0') => {
                ResourceContents::text(text, uri).with_mime_type(of_path.unwrap_or("text/plain"))
            }
            _ => ResourceContents::blob(STANDARD.encode(&bytes), uri)
                .with_mime_type(of_path.unwrap_or("application/octet-stream")),
        };
        Ok(ReadResourceResult::new(vec![contents]).with_ttl_ms(0).with_cache_scope(CacheScope::Private))
    }
}

impl Handler {
    /// Where the file is that `uri` names; nothing for what can be none.
    async fn file(&self, uri: &str) -> Result<Option<SandboxPath>, ErrorData> {
        if let Some(segments) = uri::workspace(uri).filter(|segments| !segments.is_empty()) {
            return Ok(uri::in_workspace(&segments));
        }
        let Some(segments) = uri::skill(uri) else { return Ok(None) };
        let found = self.skill_path(&segments).await?;
        Ok(found.filter(|(_, path)| !path.is_empty()).and_then(|(id, path)| uri::in_skill(&id, path)))
    }
}

/// The files of `walked` behind the path `after`, as many as a page has.
fn page(walked: Vec<Walked>, after: Option<&str>) -> Page {
    let is_shown = |walked: &Walked| {
        walked.kind == Kind::File && !walked.path.as_str().split('/').any(|name| name.starts_with('.'))
    };
    let mut files: Vec<Walked> = walked.into_iter().filter(is_shown).collect();
    files.sort_unstable_by(|one, other| one.path.as_str().cmp(other.path.as_str()));
    let left_out = files.len().saturating_sub(RESOURCES_MAX);
    files.truncate(RESOURCES_MAX);
    let begin = after.map_or(0, |after| files.partition_point(|file| file.path.as_str() <= after));
    files.drain(..begin);
    let more = files.len() > PAGE;
    files.truncate(PAGE);
    let last = files.last().filter(|_| more);
    let next = last.map(|file| URL_SAFE_NO_PAD.encode(file.path.as_str()));
    Page { files, next, left_out }
}

/// The path that a page begins behind.
fn position(cursor: &str) -> Result<String, ErrorData> {
    let path = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    path.filter(|path| RelPath::parse(path).is_ok())
        .ok_or_else(|| refusal::invalid("the cursor is none of this list: begin without one"))
}

fn resource(file: &Walked) -> Resource {
    let path = file.path.as_str();
    let mut resource = Resource::new(uri::of(path), path);
    resource.size = file.stat.as_ref().map(|stat| stat.size);
    resource.mime_type = media::of_path(path).map(str::to_owned);
    resource
}

/// Why a file is not read.
fn unread(uri: &str, error: &sandbox::Error) -> ErrorData {
    match error.kind() {
        // What leads out of the workspace is not there.
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => {
            refusal::no_resource(uri)
        }
        ErrorKind::IsDirectory => {
            refusal::invalid("it is a directory: list it with resources/directory/read")
        }
        kind => refusal::of_sandbox(kind, error.message()),
    }
}

fn too_large(uri: &str, size: u64) -> ErrorData {
    let message =
        format!("the file has {size} bytes, at most {READ_BYTES_MAX} are read: use the tools Read or Grep");
    let data = json!({ "code": "too_large", "uri": uri, "size": size, "limit": READ_BYTES_MAX });
    ErrorData::invalid_params(message, Some(data))
}
