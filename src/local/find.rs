//! [`find`]: the files of one name below directories of one tree, and how each begins, by one job.

use std::io::Read;

use bytes::Bytes;
use policy::UserId;
use sandbox::heads::{self, HeadQuery, Heads, Reading, Search};
use sandbox::{DirEntry, ErrorKind, Result, SandboxPath};
use storage::tree::Opened;
use storage::{Files, interrupt};

use super::files::kind;
use super::store_path::{At, StorePath};
use super::{LocalSandbox, errors};

/// Searches `roots`, which are those of `query`. Where they are of several trees, there is a call for each step.
pub(super) async fn find(
    sandbox: &LocalSandbox,
    user: &UserId,
    query: &HeadQuery,
    roots: &[At],
) -> Result<Heads> {
    let Some(At { tree, .. }) = roots.first().filter(|first| roots.iter().all(|at| at.tree == first.tree))
    else {
        return Ok(heads::find_by_calls(sandbox, user, query).await);
    };
    let searched = Searched {
        query: query.clone(),
        // All below the roots is of the same tree, so that a path says where it is.
        path_of: (user.clone(), sandbox.agent.clone(), sandbox.skills),
    };
    let found = sandbox.service.look_through(tree.clone(), move |files| searched.by(files)).await;
    found.map_err(|error| errors::of("find_heads", error))
}

/// A search that waits for no other.
struct Searched {
    query: HeadQuery,
    path_of: (UserId, policy::AgentId, bool),
}

impl Searched {
    fn by(&self, files: &Files) -> crate::ops::error::Result<Heads> {
        let mut searched = Vec::new();
        for root in &self.query.roots {
            let mut search = Search::new(&self.query, root);
            while let Some(directory) = search.next_directory() {
                interrupt::check()?;
                search.listed(self.list(files, &directory));
            }
            searched.push(search.end());
        }
        let (mut reading, paths) = Reading::new(&self.query, searched);
        for path in paths {
            interrupt::check()?;
            let head = self.head(files, &path);
            if !reading.take(path, head) {
                break;
            }
        }
        Ok(reading.end())
    }

    fn at(&self, operation: &'static str, path: &SandboxPath) -> Result<At> {
        let (user, agent, skills) = &self.path_of;
        match StorePath::of(user, agent, *skills, operation, path)? {
            StorePath::InTree(at) => Ok(at),
            StorePath::Skills => Err(sandbox::Error::about(ErrorKind::Unsupported, operation, path)),
        }
    }

    /// The entries of a directory, without their sizes, which no search looks at.
    fn list(&self, files: &Files, path: &SandboxPath) -> Result<Vec<DirEntry>> {
        let At { path: inside, .. } = self.at("read_dir", path)?;
        let children = files.children(&inside).map_err(|error| errors::at("read_dir", path, error.into()))?;
        let mut entries: Vec<DirEntry> = children
            .into_iter()
            .map(|child| DirEntry {
                name: child.name.to_string_lossy().into_owned(),
                kind: kind(child.kind),
                size: 0,
            })
            .collect();
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn head(&self, files: &Files, path: &SandboxPath) -> Result<Bytes> {
        let At { path: inside, .. } = self.at("read_file", path)?;
        let Opened { file, stat, .. } =
            files.open(&inside).map_err(|error| errors::at("read_file", path, error.into()))?;
        let mut head = Vec::new();
        file.take(self.query.head_bytes.min(stat.size)).read_to_end(&mut head).map_err(|error| {
            sandbox::Error::new(ErrorKind::Internal, "read_file", "the file broke off")
                .at(path)
                .because(error)
        })?;
        Ok(head.into())
    }
}
