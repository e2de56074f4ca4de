//! Trying out what the host grants, by doing it.
//!
//! Kernels, containers and file systems differ too much for their versions to tell what they grant.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::Arc;

use policy::{AgentId, RelPath, TreeId, UserId};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::layers::durability::Durability;
use crate::layers::stage::Stage;
use crate::layers::view::workplace::Workplace;
use crate::layers::view::{Holding, LiveOptions, Making, OwnerSwap, View, clone_of, mount_failed};
use crate::layers::whiteouts::is_opaque;
use crate::layout;
use crate::stat::Kind;

/// Tells how live views are held on this host, or in words why there are none.
pub(crate) fn probe(
    root: &Arc<Dir>,
    stage: &Stage,
    live: Option<LiveOptions>,
    separate_owners: bool,
) -> Result<(LiveOptions, Holding), String> {
    let Some(live) = live else { return Err("live views are switched off".to_owned()) };
    let owner = layout::passing_owner(&stage.fresh_name());
    let owner = match (separate_owners, live.swap.as_deref()) {
        (false, _) => None,
        (true, Some(swap)) => Some((swap, owner)),
        (true, None) => {
            return Err("sandboxes have user ids of their own, and nothing can map them".to_owned());
        }
    };
    let wanted: &[Holding] = match live.holding {
        Some(Holding::Detached) => &[Holding::Detached],
        Some(Holding::Attached) => &[Holding::Attached],
        None => &[Holding::Detached, Holding::Attached],
    };
    let mut reason = String::new();
    for holding in wanted {
        match try_out(root, stage, owner, *holding) {
            Ok(()) => return Ok((live, *holding)),
            // The last one: that nothing detached can be used is so before Linux 6.15, and no reason to have none.
            Err(error) => reason = in_words(&error),
        }
    }
    Err(reason)
}

/// The reason without paths.
fn in_words(error: &Error) -> String {
    match error {
        Error::Io { operation, source, .. } => {
            format!("overlayfs cannot be used here: {operation}: {source}")
        }
        Error::Unsupported(reason) => reason.clone(),
        other => format!("overlayfs cannot be used here: {other}"),
    }
}

fn try_out(
    root: &Arc<Dir>,
    stage: &Stage,
    owner: Option<(&dyn OwnerSwap, u32)>,
    holding: Holding,
) -> Result<()> {
    let layers = stage.draft();
    let dir = stage.dir().create_dir(&layers.name, 0o700)?;
    let lower = dir.create_dir(OsStr::new("lower"), 0o755)?;
    for name in ["hidden", "copied"] {
        drop(lower.create_file(OsStr::new(name), 0o644)?);
    }
    drop(lower.create_dir(OsStr::new("replaced"), 0o755)?);
    let upper = dir.create_dir(OsStr::new("upper"), 0o755)?;
    let place = RelPath::parse(layout::STAGE)?.join(&layers.name.to_string_lossy())?;
    let upper_place = place.join("upper")?;
    let (Ok(user), Ok(agent)) = (UserId::parse("probe"), AgentId::parse("probe")) else {
        return Err(lacks("a name for the probe"));
    };
    let view = View::new(Making {
        id: TreeId::Workspace(user, agent),
        root,
        workplace: Workplace::new(root, stage.fresh_name(), &upper_place)?,
        upper: upper_place,
        lower: Some((place.join("lower")?, lower)),
        is_opaque: false,
        whiteouts_among: 0,
        owner,
        holding,
        // Nothing of the trial is needed later. Unmounting it would wait until all that other programs have written to the
        // file system is on the disk: for seconds, where they write much.
        durability: Durability::Never,
        projects: stage.projects(),
    })?;
    let mounted = view.root()?;
    change(&mounted, stage.temporary_name(), owner.map(|(_, owner)| owner))?;
    check(&upper)?;
    clone_of(view.mount().as_fd()).map_err(|errno| match errno {
        Errno::INVAL if holding == Holding::Detached => {
            lacks("a kernel that clones detached mounts (Linux 6.15)")
        }
        errno => mount_failed("open_tree")(errno),
    })?;
    Ok(())
}

fn lacks(what: &str) -> Error {
    Error::Unsupported(format!("overlayfs cannot be used here: it takes {what}"))
}

/// Does in the mount what changes and commands do.
fn change(mounted: &Dir, temporary: OsString, owner: Option<u32>) -> Result<()> {
    let (file, passing) = mounted.create_to_link(0o644, temporary)?;
    mounted.link(&file, OsStr::new("made"))?;
    drop(passing);
    if let Some(owner) = owner {
        mounted.set_entry_owner(OsStr::new("made"), owner)?;
        // The owner of the rest it is already.
        if mounted.stat()?.owner != owner {
            return Err(lacks("a file system whose mounts can be idmapped"));
        }
    }
    mounted.remove_file(OsStr::new("hidden"))?;
    let (copied, _) = mounted.open_file_entry(OsStr::new("copied"))?;
    rustix::fs::fchmod(&copied, rustix::fs::Mode::from_raw_mode(0o600))
        .map_err(|errno| Error::from_errno("chmod", "copied", errno))?;
    mounted.remove_dir(OsStr::new("replaced"))?;
    drop(mounted.create_dir(OsStr::new("replaced"), 0o755)?);
    Ok(())
}

/// Looks at what that left in the upper directory.
fn check(upper: &Dir) -> Result<()> {
    let service = rustix::process::geteuid().as_raw();
    let found = |name: &str| {
        let stat = upper.stat_entry(OsStr::new(name))?;
        stat.ok_or_else(|| lacks("an upper directory that changes with the mount"))
    };
    let (made, copied) = (found("made")?, found("copied")?);
    if made.owner != service || copied.owner != service || copied.mode != 0o600 {
        return Err(lacks("mounts that map the owners of files"));
    }
    if !found("hidden")?.is_whiteout() {
        return Err(lacks("whiteouts that are devices"));
    }
    let replaced = found("replaced")?;
    if replaced.kind != Kind::Directory || !is_opaque(&upper.open_dir_entry(OsStr::new("replaced"))?)? {
        return Err(lacks("markers that are user attributes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_no_path_of_the_host() {
        let error = Error::Io {
            operation: "fsopen",
            path: "/data/secret".to_owned(),
            source: std::io::Error::from_raw_os_error(1),
        };
        assert_eq!(
            in_words(&error),
            "overlayfs cannot be used here: fsopen: Operation not permitted (os error 1)"
        );
    }
}
