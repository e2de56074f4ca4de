//! [`Place`]: the tree and the path that a caller's text leads to.

use policy::{RelPath, TreeId};
use storage::Kind;

use super::tree::TreeRequest;
use crate::http::answer::problem::Problem;
use crate::http::request_log;
use crate::ops::tree::Tree;

/// Something in a tree, as a caller named it.
pub(in crate::http) struct Place {
    pub(in crate::http) tree: Tree,
    pub(in crate::http) path: RelPath,
    pub(in crate::http) above: Above,
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
    pub(in crate::http) async fn file(&self, text: Option<&str>) -> Result<Place, Problem> {
        if let Some(text) = text.filter(|text| says_directory(text)) {
            self.tree.id().resolve(text)?;
            return Err(Problem::invalid(format!("`{text}` names a directory: leave the final `/` out")));
        }
        self.entry(text).await
    }

    /// The place of a file or a directory; with a final `/`, what is there is a directory.
    ///
    /// The tree itself is no such thing: a workspace or skill is never written, moved or removed as a file.
    ///
    /// # Errors
    /// `invalid`: no text, or the tree itself; `not_a_directory`. Else as [`TreeId::resolve`].
    pub(in crate::http) async fn entry(&self, text: Option<&str>) -> Result<Place, Problem> {
        let text = text.ok_or_else(|| Problem::invalid("the parameter `path` is missing"))?;
        let place = self.place(self.tree.id().resolve(text)?).await?;
        if place.path.is_root() {
            return Err(Problem::invalid(format!(
                "`{text}` is the tree itself: name a file or directory in it"
            )));
        }
        if says_directory(text) {
            place.check_directory().await?;
        }
        request_log::path(&place.path);
        Ok(place)
    }

    /// The place of a directory; without a text, or with an empty one, it is the tree itself.
    ///
    /// # Errors
    /// `not_a_directory` for something else with a final `/`. Else as [`TreeId::resolve`].
    pub(in crate::http) async fn dir(&self, text: Option<&str>) -> Result<Place, Problem> {
        let text = text.unwrap_or_default();
        let place = self.place(dir_of(self.tree.id(), text)?).await?;
        if says_directory(text) {
            place.check_directory().await?;
        }
        Ok(place)
    }

    /// The places of something and of where it is to be: in one tree, because an entry changes its name in one step.
    ///
    /// # Errors
    /// `invalid` for places in two trees. Else as [`TreeRequest::entry`].
    pub(in crate::http) async fn entries(&self, from: &str, to: &str) -> Result<(Place, Place), Problem> {
        let places = (self.entry(Some(from)).await?, self.entry(Some(to)).await?);
        if places.0.tree.id() != places.1.tree.id() {
            let message = format!("`{from}` and `{to}` are in two trees: read the one and write the other");
            return Err(Problem::invalid(message));
        }
        if says_directory(to) {
            places.0.check_directory().await?;
        }
        Ok(places)
    }

    /// Refuses a path of a workspace that leads into a skill of its user.
    ///
    /// # Errors
    /// `invalid`, with the skill.
    pub(in crate::http) async fn check_own(&self, path: &RelPath) -> Result<(), Problem> {
        let Some((tree, _)) = self.tree.skill_at(path).await? else { return Ok(()) };
        match tree.id() {
            TreeId::Skill(_, _, skill) => Err(Problem::invalid(format!(
                "`{path}` is in the skill `{skill}`: ask the same of that skill, with paths from its root"
            ))),
            TreeId::Workspace(..) => Ok(()),
        }
    }

    /// The place of a path of the request's tree. A path to a skill that the user has leads into the skill, as it does in a
    /// run that sees the skill, also when the workspace itself has something there.
    async fn place(&self, path: RelPath) -> Result<Place, Problem> {
        if let Some((tree, inside)) = self.tree.skill_at(&path).await? {
            let below = if inside.is_root() { 0 } else { inside.as_str().len() + 1 };
            let above = path.as_str().get(..path.as_str().len() - below).map(RelPath::parse).transpose()?;
            if let TreeId::Skill(user, agent, skill) = tree.id() {
                request_log::tree(user, agent, Some(skill));
            }
            return Ok(Place { tree, path: inside, above: Above(above) });
        }
        Ok(Place { tree: self.tree.clone(), path, above: Above::default() })
    }
}

impl Place {
    /// Its path as the tree of the request has it; `.` for that tree itself.
    pub(in crate::http) fn shown(&self) -> String {
        if self.path.is_root() && self.above.0.is_none() {
            return self.path.to_string();
        }
        self.above.path(self.path.as_str())
    }

    /// Refuses what is there and is no directory.
    async fn check_directory(&self) -> Result<(), Problem> {
        match self.tree.stat(&self.path).await {
            Ok(facts) if facts.kind != Kind::Directory => {
                Err(storage::Error::NotADirectory(self.path.to_string()).into())
            }
            // What is not there, or cannot be looked at, is told by what was asked for.
            Ok(_) | Err(_) => Ok(()),
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
