//! How a run gets to the process that starts it: a resident that waits for it, or the launcher.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::RelPath;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2, readlinkat};

use super::spec::RunSpec;
use super::stdio::StdioPipes;
use crate::error::Error;
use crate::service::launcher::Launcher;
use crate::service::launcher::known::Bounds;
use crate::service::mounts::Clones;
use crate::service::networks::RunNetwork;
use crate::service::own_mounts::OwnMounts;
use crate::service::residents::Resident;
use crate::supervisor::Supervised;
use crate::tier::Network;
use crate::walls::landlock::{Own, open_path};
use crate::wire::{self, Descriptors, MOUNTS_MAX, Next, Request, TreeLocation, packet_sockets};
use crate::workloads::ServiceWork;

impl Launcher {
    /// Gives a run to a resident. Gives the request back when the resident is gone.
    pub(super) fn hand_on(
        &self,
        spec: &RunSpec,
        resident: Resident,
        stdio: &StdioPipes,
        request: Request,
    ) -> Result<Result<HandedOver, Request>, Error> {
        let Resident { socket, through, mounts, .. } = resident;
        let directory = enter(mounts.tree(), &spec.directory)?;
        let Request { command, deadline_ms, is_live, gives_way, .. } = request;
        let next = Next { command, deadline_ms, is_live, gives_way };
        match wire::send_next(socket.as_fd(), &next, stdio.theirs(self.null.as_fd()), directory.as_fd()) {
            Ok(()) => Ok(Ok(HandedOver { reports: socket, through, mounts: Some(mounts), supervised: None })),
            Err(_) => Ok(Err(Request { command: next.command, ..request })),
        }
    }

    /// Opens what the run needs and hands it over.
    pub(super) async fn launch(
        self: &Arc<Self>,
        spec: &RunSpec,
        stdio: &StdioPipes,
        mut request: Request,
        run_network: &RunNetwork,
        bounds: &Bounds,
        work: Option<ServiceWork>,
    ) -> Result<HandedOver, Error> {
        let clones = match self.mounts() {
            true => Some(Clones::of(&spec.attachments, bounds.code_in_trees)?),
            false => None,
        };
        if let Some(clones) = &clones {
            request.place = TreeLocation::Mounted { at: clones.at.clone(), leases: spec.leases.len() };
        }
        let Opened { directory, walls, own, temporary } = self.surroundings(spec, clones.as_ref(), bounds)?;
        let (reports, run) = packet_sockets().map_err(Error::resource("socketpair"))?;
        let descriptors = Descriptors {
            run: run.as_fd(),
            stdio: stdio.theirs(self.null.as_fd()),
            directory: directory.as_fd(),
            walls: walls.as_ref().map(|ruleset| ruleset.as_fd()),
            network: run_network.namespace().map(|namespace| namespace.as_fd()),
            mounts: clones
                .as_ref()
                .map(|clones| clones.mounts.iter().map(AsFd::as_fd).collect())
                .unwrap_or_default(),
            leases: match &clones {
                Some(_) => spec.leases.iter().map(|lease| lease.as_fd()).collect(),
                None => Vec::new(),
            },
        };
        let through = self.submit(&request, &descriptors).await?;
        let tree = clones.filter(|_| request.may_stay).and_then(Clones::into_tree);
        let mounts = tree.map(|tree| OwnMounts::new(tree, &spec.attachments)).transpose()?;
        let connects = request.sockets.are_connected_by_service();
        let is_supervised = connects || request.identity.is_none() && self.supervises();
        let owner = spec.network_of.as_ref().filter(|_| connects && spec.network == Network::Proxy);
        let supervised = is_supervised.then(|| Supervised {
            own,
            processes: spec.limits.processes,
            identity: request.identity,
            proxy: owner.and_then(|owner| self.proxy_link(owner)),
            loopback: run_network.loopback().filter(|_| connects).cloned(),
            walls: walls.filter(|_| connects),
            temporary,
            home: spec.view.scratch.display().to_string(),
            work,
            beside: (!request.gives_way).then(|| self.pid()),
        });
        Ok(HandedOver { reports, through, mounts, supervised })
    }
}

/// A run that was handed over.
pub(super) struct HandedOver {
    /// Its socket.
    pub(super) reports: OwnedFd,
    /// The launcher's.
    pub(super) through: Arc<OwnedFd>,
    /// Its own mounts, when its first process may stay.
    pub(super) mounts: Option<OwnMounts>,
    /// The facts for its supervisor, when it has one.
    pub(super) supervised: Option<Supervised>,
}

/// The descriptors that are opened for a run.
struct Opened {
    /// The working directory.
    directory: OwnedFd,
    walls: Option<Arc<OwnedFd>>,
    /// The directories of its own that are not mounted for it.
    own: Vec<OwnedFd>,
    /// What stands for `/tmp` where nothing is mounted.
    temporary: Option<OwnedFd>,
}

impl Launcher {
    /// Opens the working directory, and finds or builds the walls around what the run sees.
    fn surroundings(
        &self,
        spec: &RunSpec,
        clones: Option<&Clones>,
        bounds: &Bounds,
    ) -> Result<Opened, Error> {
        let has_ports = clones.is_some() || spec.network == Network::Host;
        let build = |own: &[Own<'_>]| {
            let walls = bounds.walls.as_ref().filter(|_| self.landlock.is_ok());
            walls.map(|walls| walls.ruleset(own, has_ports).map_err(Error::Walls)).transpose()
        };
        if let Some(clones) = clones {
            let tree = clones.tree().ok_or(Error::Attachments { most: MOUNTS_MAX })?;
            let seen = spec.attachments.iter();
            let own: Vec<Own<'_>> =
                seen.map(|attachment| (attachment.directory.as_fd(), attachment.generation)).collect();
            let directory = enter(tree, &spec.directory)?;
            return Ok(Opened { directory, walls: build(&own)?, own: Vec::new(), temporary: None });
        }
        let place =
            |path: &Path| open_path(path).map_err(|source| Error::Tree { path: path.to_path_buf(), source });
        let tree = place(&spec.view.tree)?;
        let directory = match copy_of(tree.as_fd(), &spec.view.skills, &spec.directory) {
            Some((copy, below)) => enter(place(copy)?.as_fd(), &below)?,
            None => enter(tree.as_fd(), &spec.directory)?,
        };
        let mut own = vec![tree, place(&spec.view.scratch)?];
        for skill in &spec.view.skills {
            own.push(place(skill)?);
        }
        let walls = build(&own.iter().map(|directory| (directory.as_fd(), 0)).collect::<Vec<Own<'_>>>())?;
        let temporary = spec.environment.iter().find(|(name, _)| name == "TMPDIR");
        let temporary = temporary.and_then(|(_, path)| open_path(Path::new(path)).ok());
        Ok(Opened { directory, walls, own, temporary })
    }
}

/// The copy of a skill that `directory` leads into by a link of the tree, and the directory in it. Links to anything but
/// the copies of this very run are not followed.
fn copy_of<'a>(
    tree: BorrowedFd<'_>,
    copies: &'a [PathBuf],
    directory: &RelPath,
) -> Option<(&'a PathBuf, RelPath)> {
    let mut names = directory.as_str().splitn(3, '/');
    let link = format!("{}/{}", names.next()?, names.next()?);
    let target = readlinkat(tree, link, Vec::new()).ok()?;
    let copy = copies.iter().find(|copy| copy.as_os_str().as_bytes() == target.as_bytes())?;
    let below = names.next().map_or(Ok(RelPath::root()), RelPath::parse).ok()?;
    Some((copy, below))
}

/// How often the working directory is tried while others are renamed; each attempt takes some microseconds.
const ATTEMPTS_MAX: usize = 1000;

/// Opens the working directory beneath the tree; the kernel refuses to leave it by any link.
fn enter(tree: BorrowedFd<'_>, directory: &RelPath) -> Result<OwnedFd, Error> {
    let path = if directory.is_root() { "." } else { directory.as_str() };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let open = || openat2(tree, path, flags, Mode::empty(), resolve);
    // A link with `..`, while anything on this machine was renamed (openat2(2), `EAGAIN`).
    let is_disturbed = |opened: &rustix::io::Result<OwnedFd>| matches!(opened, Err(rustix::io::Errno::AGAIN));
    let opened = (0..ATTEMPTS_MAX).map(|_| open()).find(|opened| !is_disturbed(opened));
    opened
        .unwrap_or(Err(rustix::io::Errno::AGAIN))
        .map_err(|error| Error::Directory { directory: directory.to_string(), source: error.into() })
}
