//! `resources/directory/read`: the entries of one directory, of the workspace or of a skill.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rmcp::ErrorData;
use rmcp::model::{CacheScope, DIRECTORY_MIME_TYPE, ListResourcesResult, Resource};
use sandbox::{DirEntry, ErrorKind, FileKind, SandboxPath};

use crate::mcp::handler::Handler;
use crate::mcp::{media, refusal, uri};

/// Entries in one page.
const PAGE: usize = 500;

impl Handler {
    /// A page of the entries of the directory `uri`, sorted by name.
    pub(in crate::mcp) async fn directory(
        &self,
        uri: String,
        cursor: Option<String>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let after = cursor.map(|cursor| position(&cursor)).transpose()?;
        let none = || refusal::no_directory(&uri);
        let base = uri.trim_end_matches('/');
        let path = match uri::workspace(base) {
            Some(segments) => uri::in_workspace(&segments),
            None => {
                let segments = uri::skill(base).ok_or_else(none)?;
                let (id, path) = self.skill_path(&segments).await?.ok_or_else(none)?;
                uri::in_skill(&id, path)
            }
        };
        let path = path.ok_or_else(none)?;
        let sandbox = (self.mcp.workspaces)(self.mcp.service.clone(), self.target.agent.clone());
        let listed = sandbox.read_dir(&self.target.user, &path).await;
        let mut entries = match listed {
            Ok(entries) => entries,
            // A workspace that was never written to.
            Err(error) if error.kind() == ErrorKind::NotFound && path == SandboxPath::workspace() => {
                Vec::new()
            }
            Err(error) => return Err(unlisted(&uri, &error)),
        };
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let begin = after.map_or(0, |after| entries.partition_point(|entry| entry.name <= after));
        entries.drain(..begin);
        let more = entries.len() > PAGE;
        entries.truncate(PAGE);
        let last = entries.last().filter(|_| more).map(|entry| URL_SAFE_NO_PAD.encode(&entry.name));
        // What the three slashes of the workspace itself end with.
        let base = if base == "workspace:" { "workspace://" } else { base };
        let resources = entries.iter().map(|entry| resource(base, entry)).collect();
        let mut result = ListResourcesResult::with_all_items(resources)
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private);
        result.next_cursor = last;
        Ok(result)
    }
}

fn resource(base: &str, entry: &DirEntry) -> Resource {
    let resource = Resource::new(format!("{base}/{}", uri::encoded(&entry.name)), entry.name.clone());
    match entry.kind {
        FileKind::Directory => resource.with_mime_type(DIRECTORY_MIME_TYPE),
        _ => match media::of_path(&entry.name) {
            Some(media) => resource.with_mime_type(media),
            None => resource,
        },
    }
}

/// The name that a page begins behind.
fn position(cursor: &str) -> Result<String, ErrorData> {
    let name = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    name.ok_or_else(|| refusal::invalid("the cursor is none of this list: begin without one"))
}

/// Why a directory is not listed.
fn unlisted(uri: &str, error: &sandbox::Error) -> ErrorData {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => {
            refusal::no_directory(uri)
        }
        kind => refusal::of_sandbox(kind, error.message()),
    }
}
