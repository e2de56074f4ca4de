//! [`Place`]: the tree and the path that a caller's text leads to.

use std::sync::Arc;

use policy::{RelPath, TreeId};
use sandbox::FileKind;
use storage::{Kind, Version};

use super::tree::TreeRequest;
use crate::http::problem::Problem;
use crate::http::{App, request_log};
use crate::ops::Error;
use crate::ops::remote::Backend;
use crate::ops::seen::Seen;

/// Something in a tree, as a caller named it.
pub(in crate::http) struct Place {
    pub(in crate::http) id: TreeId,
    pub(in crate::http) path: RelPath,
    pub(in crate::http) above: Above,
    /// The backend that holds the tree; `None` where this service does.
    pub(in crate::http) backend: Option<Arc<Backend>>,
    /// The published version of the skill that is read instead of what its user sees.
    pub(in crate::http) version: Option<Version>,
}

/// The way from the tree that the request names to the tree of its [`Place`]; nothing where they are the same.
#[derive(Clone, Default)]
pub(in crate::http) struct Above(Option<RelPath>);

impl Above {
    /// A path of the place's tree, as the request's tree has it.
    pub(in crate::http) fn path(&self, path: impl AsRef<str>) -> String {
        let path = path.as_ref();
        match &self.0 {
            None => path.to_owned(),
            Some(above) if path.is_empty() => above.to_string(),
            Some(above) => format!("{above}/{path}"),
        }
    }
}

impl TreeRequest {
    /// The place of a file: what is there, or is to be there, is no directory.
    ///
    /// # Errors
    /// `invalid`: no text, the tree itself, or a final `/`. Else as [`TreeId::resolve`].
    pub(in crate::http) async fn file(&self, app: &App, text: Option<&str>) -> Result<Place, Problem> {
        if let Some(text) = text.filter(|text| says_directory(text)) {
            self.id.resolve(text)?;
            return Err(Problem::invalid(format!("`{text}` names a directory: leave the final `/` out")));
        }
        self.entry(app, text).await
    }

    /// The place of a file or a directory; with a final `/`, what is there is a directory.
    ///
    /// The tree itself is no such thing: a workspace or skill is never written, moved or removed as a file.
    ///
    /// # Errors
    /// `invalid`: no text, or the tree itself; `not_a_directory`. Else as [`TreeId::resolve`].
    pub(in crate::http) async fn entry(&self, app: &App, text: Option<&str>) -> Result<Place, Problem> {
        let text = text.ok_or_else(|| Problem::invalid("the parameter `path` is missing"))?;
        let place = self.place(app, self.id.resolve(text)?).await?;
        if place.path.is_root() {
            return Err(Problem::invalid(format!(
                "`{text}` is the tree itself: name a file or directory in it"
            )));
        }
        if says_directory(text) {
            place.check_directory(app).await?;
        }
        request_log::path(&place.path);
        Ok(place)
    }

    /// The place of a directory; without a text, or with an empty one, it is the tree itself.
    ///
    /// # Errors
    /// `not_a_directory` for something else with a final `/`. Else as [`TreeId::resolve`].
    pub(in crate::http) async fn dir(&self, app: &App, text: Option<&str>) -> Result<Place, Problem> {
        let text = text.unwrap_or_default();
        let path = dir_of(&self.id, text)?;
        let place = self.place(app, path).await?;
        if says_directory(text) {
            place.check_directory(app).await?;
        }
        Ok(place)
    }

    /// The places of something and of where it is to be: in one tree, because an entry changes its name in one step.
    ///
    /// # Errors
    /// `invalid` for places in two trees. Else as [`TreeRequest::entry`].
    pub(in crate::http) async fn entries(
        &self,
        app: &App,
        from: &str,
        to: &str,
    ) -> Result<(Place, Place), Problem> {
        let places = (self.entry(app, Some(from)).await?, self.entry(app, Some(to)).await?);
        if places.0.id != places.1.id {
            let message = format!("`{from}` and `{to}` are in two trees: read the one and write the other");
            return Err(Problem::invalid(message));
        }
        if says_directory(to) {
            places.0.check_directory(app).await?;
        }
        Ok(places)
    }

    /// Refuses a path of a workspace that leads into a skill of its user.
    ///
    /// # Errors
    /// `invalid`, with the skill.
    pub(in crate::http) async fn check_own(&self, app: &App, path: &RelPath) -> Result<(), Problem> {
        match self.skill_at(app, path).await? {
            Some((TreeId::Skill(_, _, skill), _)) => Err(Problem::invalid(format!(
                "`{path}` is in the skill `{skill}`: ask the same of that skill, with paths from its root"
            ))),
            _ => Ok(()),
        }
    }

    /// The place of a path of the request's tree. A path to a skill that the user has leads into the skill, as it does in a
    /// run that sees the skill, also when the workspace itself has something there.
    async fn place(&self, app: &App, path: RelPath) -> Result<Place, Problem> {
        if let Some((id, inside)) = self.skill_at(app, &path).await? {
            let below = if inside.is_root() { 0 } else { inside.as_str().len() + 1 };
            let above = path.as_str().get(..path.as_str().len() - below).map(RelPath::parse).transpose()?;
            if let TreeId::Skill(user, agent, skill) = &id {
                request_log::tree(user, agent, Some(skill));
            }
            return Ok(Place { id, path: inside, above: Above(above), backend: None, version: None });
        }
        let (backend, version) = (self.backend.clone(), self.version.clone());
        Ok(Place { id: self.id.clone(), path, above: Above::default(), backend, version })
    }
}

impl TreeRequest {
    /// The skill that a path of this workspace leads to, if the user has it, and the path in it.
    async fn skill_at(&self, app: &App, path: &RelPath) -> Result<Option<(TreeId, RelPath)>, Problem> {
        if self.backend.is_some() {
            return Ok(None);
        }
        let Some((id, inside)) = self.id.skill_at(path) else { return Ok(None) };
        match app.service.stat(id.clone(), RelPath::root()).await {
            Ok((stat, _)) if stat.kind == Kind::Directory => Ok(Some((id, inside))),
            Ok(_) | Err(Error::Storage(storage::Error::NotFound(_))) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }
}

impl Place {
    /// The state of the tree that is read.
    pub(in crate::http) fn seen(&self) -> Seen {
        Seen { id: self.id.clone(), version: self.version.clone() }
    }

    /// Its path as the tree of the request has it; `.` for that tree itself.
    pub(in crate::http) fn shown(&self) -> String {
        if self.path.is_root() && self.above.0.is_none() {
            return self.path.to_string();
        }
        self.above.path(self.path.as_str())
    }

    /// Refuses what is there and is no directory.
    async fn check_directory(&self, app: &App) -> Result<(), Problem> {
        let is_directory = match &self.backend {
            Some(backend) => backend.stat(&self.path).await.map(|info| info.kind == FileKind::Directory),
            None => {
                let looked = app.service.stat(self.seen(), self.path.clone()).await;
                looked.map(|(stat, _)| stat.kind == Kind::Directory)
            }
        };
        match is_directory {
            // What is not there, or cannot be looked at, is told by what was asked for.
            Ok(true) | Err(_) => Ok(()),
            Ok(false) => Err(storage::Error::NotADirectory(self.path.to_string()).into()),
        }
    }
}

/// Reads the path of a directory; empty, it is the tree itself.
pub(in crate::http) fn dir_of(id: &TreeId, text: &str) -> Result<RelPath, Problem> {
    if text.is_empty() { Ok(RelPath::root()) } else { Ok(id.resolve(text)?) }
}

/// Tells whether a text says that it names a directory.
pub(in crate::http) fn says_directory(text: &str) -> bool {
    text.len() > 1 && text.ends_with('/')
}
