//! The skills extension (SEP-2640): the skills that the user sees, each with the digests of its files.
//!
//! | File | Holds |
//! | --- | --- |
//! | `entry` | one skill as clients see it, from its front matter and its files |
//! | `directory` | the entries of one directory |

mod directory;
mod entry;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use policy::{SkillId, TreeId};
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, GetSkillResult, ListSkillsResult, MetaObject, Resource, Skill, SkillResources,
};
use serde_json::{Map, Value, json};

use self::entry::{Head, LeftOut};
use super::handler::Handler;
use super::{refusal, uri};
use crate::ops::manifests::{ManifestBounds, SKILL_MD};

/// How much one skill may have, as the extension says.
const BOUNDS: ManifestBounds = ManifestBounds { files: 512, bytes: 16 << 20 };
/// Skills looked at for one page.
const PAGE: usize = 100;
/// Bytes read for one page, after which it has no further skill.
const PAGE_BYTES: u64 = 32 << 20;
/// Bytes of names in one page, after which it has no further skill.
const PAGE_TEXT_BYTES: usize = 1 << 20;
/// What a page takes in memory, with its last skill, in bytes.
const ROOM: usize = 8 << 20;
/// The skills that a page leaves out, in its `_meta`.
const LEFT_OUT: &str = "io.modelcontextprotocol.skills/left-out";

/// The work for a page so far.
#[derive(Default)]
struct Page {
    skills: Vec<Skill>,
    left_out: Vec<Value>,
    bytes: u64,
    text_bytes: usize,
}

impl Handler {
    pub(super) fn skill_tree(&self, id: &SkillId) -> TreeId {
        TreeId::Skill(self.target.user.clone(), self.target.agent.clone(), id.clone())
    }

    /// A page of the skills that are served, sorted by id.
    pub(super) async fn skills(&self, cursor: Option<String>) -> Result<ListSkillsResult, ErrorData> {
        let after = cursor.map(|cursor| position(&cursor)).transpose()?;
        let (user, agent) = (self.target.user.clone(), self.target.agent.clone());
        let ids = self.mcp.service.skill_ids(user, agent).await.map_err(|error| refusal::of(&error))?;
        let mut ids = ids.into_iter().filter(|id| after.as_ref().is_none_or(|after| id > after)).peekable();
        let room = self.mcp.service.admission().hold_bytes(Some(&self.target.user), ROOM).await;
        self.held.hold(room.map_err(|error| refusal::of(&error))?);
        let mut page = Page::default();
        let mut last = None;
        for id in ids.by_ref().take(PAGE) {
            self.add(&mut page, &id).await?;
            last = Some(id);
            if page.bytes >= PAGE_BYTES || page.text_bytes >= PAGE_TEXT_BYTES {
                break;
            }
        }
        let mut result = ListSkillsResult::with_all_items(page.skills)
            .with_ttl_ms(0)
            .with_cache_scope(CacheScope::Private);
        if !page.left_out.is_empty() {
            result.meta =
                Some(MetaObject::from(Map::from_iter([(LEFT_OUT.to_owned(), page.left_out.into())])));
        }
        let next = last.filter(|_| ids.peek().is_some());
        result.next_cursor = next.map(|id| URL_SAFE_NO_PAD.encode(id.as_str()));
        Ok(result)
    }

    /// Adds a skill to a page, or why it is left out. One that has gone meanwhile is neither.
    async fn add(&self, page: &mut Page, id: &SkillId) -> Result<(), ErrorData> {
        let why = match self.entry(id, None).await {
            Ok(Some(Ok(skill))) => {
                if let SkillResources::Files(files) = &skill.resources {
                    page.bytes += files.iter().map(|file| file.size).sum::<u64>();
                    page.text_bytes += files.iter().map(|file| file.uri.len()).sum::<usize>();
                }
                page.skills.push(skill);
                return Ok(());
            }
            Ok(Some(Err(why))) => why,
            Ok(None) => return Ok(()),
            Err(error) => return Err(error),
        };
        // As much as may have been read for nothing.
        page.bytes += PAGE_BYTES / 8;
        page.left_out.push(json!({ "skill_id": id, "why": why.text() }));
        Ok(())
    }

    /// The skill whose `SKILL.md` is called `uri`.
    pub(super) async fn skill(&self, uri: String) -> Result<GetSkillResult, ErrorData> {
        let unknown = || refusal::invalid("no skill is served under this URI: list them with skills/list");
        let segments = uri::skill(&uri).ok_or_else(unknown)?;
        let (id, path) = self.skill_path(&segments).await?.ok_or_else(unknown)?;
        let base = uri.strip_suffix(SKILL_MD).filter(|_| path == [SKILL_MD]).ok_or_else(unknown)?;
        let room = self.mcp.service.admission().hold_bytes(Some(&self.target.user), ROOM).await;
        self.held.hold(room.map_err(|error| refusal::of(&error))?);
        let skill = self.entry(&id, Some(base)).await?.and_then(Result::ok).ok_or_else(unknown)?;
        Ok(GetSkillResult::new(skill).with_ttl_ms(0).with_cache_scope(CacheScope::Private))
    }

    /// The entry of a skill, whose URIs begin with `base`; nothing when the user sees no such skill.
    async fn entry(
        &self,
        id: &SkillId,
        base: Option<&str>,
    ) -> Result<Option<Result<Skill, LeftOut>>, ErrorData> {
        use crate::ops::Error;
        let manifest = match self.mcp.service.manifest(self.skill_tree(id), BOUNDS).await {
            Err(Error::Storage(storage::Error::NotFound(_))) => return Ok(None),
            manifest => manifest.map_err(|error| refusal::of(&error))?,
        };
        Ok(Some(manifest.map_err(LeftOut::from).and_then(|manifest| {
            let head = Head::read(&manifest.head, self.mcp.skill_names)?;
            head.entry(id, base, manifest.files)
        })))
    }

    /// What the `SKILL.md` of a skill says; nothing when it is not served.
    async fn head(&self, id: &SkillId) -> Result<Option<Head>, ErrorData> {
        let head = self.mcp.service.skill_head(self.skill_tree(id)).await;
        let head = head.map_err(|error| refusal::of(&error))?;
        Ok(head.and_then(|head| Head::read(&head, self.mcp.skill_names).ok()))
    }

    /// The skill that the segments of a URI begin with, and the path in it that they end with.
    pub(super) async fn skill_path<'a>(
        &self,
        segments: &'a [String],
    ) -> Result<Option<(SkillId, &'a [String])>, ErrorData> {
        let Some((first, rest)) = segments.split_first() else { return Ok(None) };
        let Ok(id) = SkillId::parse(first) else { return Ok(None) };
        let Some(head) = self.head(&id).await? else { return Ok(None) };
        Ok(match rest.split_first() {
            _ if head.name() == id.as_str() => Some((id, rest)),
            Some((name, rest)) if name == head.name() => Some((id, rest)),
            _ => None,
        })
    }

    /// The `SKILL.md` files of the skills, as resources, of at most `most`; and how many there are more.
    pub(super) async fn skill_resources(&self, most: usize) -> Result<(Vec<Resource>, usize), ErrorData> {
        let (user, agent) = (self.target.user.clone(), self.target.agent.clone());
        let ids = self.mcp.service.skill_ids(user, agent).await.map_err(|error| refusal::of(&error))?;
        let more = ids.len().saturating_sub(most);
        let mut resources = Vec::new();
        for id in ids.into_iter().take(most) {
            resources.extend(self.head(&id).await?.map(|head| head.resource(&id)));
        }
        Ok((resources, more))
    }
}

/// The skill that a page begins behind.
fn position(cursor: &str) -> Result<SkillId, ErrorData> {
    let id = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    id.and_then(|id| SkillId::parse(&id).ok())
        .ok_or_else(|| refusal::invalid("the cursor is none of this list: begin without one"))
}
