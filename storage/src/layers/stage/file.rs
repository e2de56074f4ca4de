//! [`StagedFile`]: a file that is being written and takes its place whole.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek, Write};

use parking_lot::Mutex;
use rustix::fs::{Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::time::ClockId;

use super::Stage;
use crate::dir::{Dir, PassingName};
use crate::error::{Error, Result};
use crate::layers::durability::Durability;
use crate::layers::view::ViewLease;
use crate::stat::Stat;

/// The allowance that bytes count for while they are on their way, until this is dropped.
pub(crate) trait Allowance: Send + Sync {
    /// Takes `bytes` that are about to be written.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoSpace`].
    fn take(&mut self, bytes: u64) -> Result<()>;

    /// What a failure of writing them is, once it is known what for they were meant.
    fn explain(&self, error: Error) -> Error {
        error
    }
}

/// A file that is being written and that no reader sees yet.
///
/// Dropping it unplaced removes it.
pub struct StagedFile {
    stage: Stage,
    // Before what holds it: a mount does not go as long as a file in it is open.
    file: File,
    held: Held,
    /// Permission bits, when they are known.
    mode: Option<u32>,
    /// The allowance that its bytes count for until it is placed.
    flight: Option<Box<dyn Allowance>>,
}

/// Where a staged file is.
enum Held {
    /// In the stage, under a name.
    Named(OsString),
    /// In a live view, without a name of its own.
    Unnamed(InView),
    /// In its place.
    Placed,
}

/// What a file in a live view has. A mount does not go as long as something in it is open, so the lease goes last.
struct InView {
    /// The name that it has until it is linked, where the kernel wants one.
    passing: Mutex<Option<PassingName>>,
    lease: ViewLease,
}

impl Stage {
    /// Begins a file with permission bits `mode`, owned by `owner` where the service may give files away.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub fn file(&self, mode: u32, owner: Option<u32>) -> Result<StagedFile> {
        let name = self.fresh_name();
        let file = self.inner.dir.create_file(&name, mode & 0o777)?;
        let held = Held::Named(name);
        let staged = StagedFile { stage: self.clone(), held, file, mode: Some(mode & 0o777), flight: None };
        if let Some(owner) = owner {
            staged.set_owner(owner)?;
        }
        Ok(staged)
    }

    /// Begins a file that is going to a live view, whose root is `root`: there, without a name, or in the stage where the
    /// file system of views has no such files. Others would see a name for as long as it takes to fill the file.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub(crate) fn file_for_view(
        &self,
        mode: u32,
        owner: Option<u32>,
        seat: ViewLease,
        root: &Dir,
    ) -> Result<StagedFile> {
        match root.create_unnamed(mode & 0o777)? {
            Some(file) => self.in_view(file, None, mode, owner, seat),
            None => self.file(mode, None),
        }
    }

    /// Begins a file in a live view that is filled at once. The view goes as little as the file does.
    ///
    /// `root` is the root of the mount.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    fn file_in_view(&self, mode: u32, owner: Option<u32>, seat: ViewLease, root: &Dir) -> Result<StagedFile> {
        let (file, passing) = root.create_to_link(mode & 0o777, self.temporary_name())?;
        self.in_view(file, passing, mode, owner, seat)
    }

    fn in_view(
        &self,
        file: File,
        passing: Option<PassingName>,
        mode: u32,
        owner: Option<u32>,
        lease: ViewLease,
    ) -> Result<StagedFile> {
        let held = Held::Unnamed(InView { passing: Mutex::new(passing), lease });
        let staged = StagedFile { stage: self.clone(), held, file, mode: Some(mode & 0o777), flight: None };
        if let Some(owner) = owner {
            staged.set_owner(owner)?;
        }
        Ok(staged)
    }
}

impl StagedFile {
    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Has its bytes count as `flight` until it is placed.
    pub(crate) fn counted(mut self, flight: impl Allowance + 'static) -> Self {
        self.flight = Some(Box::new(flight));
        self
    }

    /// Takes `bytes` that are about to be written, where they count.
    ///
    /// # Errors
    /// As [`Allowance::take`].
    pub(crate) fn take(&mut self, bytes: u64) -> Result<()> {
        self.flight.as_mut().map_or(Ok(()), |flight| flight.take(bytes))
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// As [`Allowance::take`]; [`Error::NoSpace`], [`Error::Io`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.take(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        self.file.write_all(bytes).map_err(|error| {
            let error = Error::from_io("write", "stage", error);
            match &self.flight {
                Some(flight) => flight.explain(error),
                None => error,
            }
        })
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn set_mode(&mut self, mode: u32) -> Result<()> {
        let mode = mode & 0o777;
        if self.mode == Some(mode) {
            return Ok(());
        }
        self.mode = Some(mode);
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode & 0o777))
            .map_err(|errno| Error::from_errno("chmod", "stage", errno))
    }

    pub(crate) fn set_owner(&self, owner: u32) -> Result<()> {
        rustix::fs::fchown(&self.file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))
            .map_err(|errno| Error::from_errno("chown", "stage", errno))
    }

    /// Ends the writing: sets the modification time to now and, with strict durability, waits for the disk.
    ///
    /// The kernel stamps a write with the time of its last tick; a time of our own, in nanoseconds, tells apart
    /// two writes within one tick, which the tag of a file relies on.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`].
    pub fn finish(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| Error::from_io("write", "stage", error))?;
        self.seal_time()?;
        self.finish_keeping_time()
    }

    /// Sets the modification time to now; see [`StagedFile::finish`].
    pub(crate) fn seal_time(&self) -> Result<()> {
        let now = rustix::time::clock_gettime(ClockId::Realtime);
        let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        rustix::fs::futimens(&self.file, &Timestamps { last_access: omitted, last_modification: now })
            .map_err(|errno| Error::from_errno("utimens", "stage", errno))
    }

    /// Ends the writing as [`StagedFile::finish`] does, but leaves the modification time: a copy-up keeps it.
    pub(crate) fn finish_keeping_time(&mut self) -> Result<()> {
        if self.stage.durability() == Durability::Strict {
            self.file.sync_all().map_err(|error| Error::from_io("fsync", "stage", error))?;
        }
        Ok(())
    }

    /// The file as it is now.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stat(&self) -> Result<Stat> {
        rustix::fs::fstat(&self.file)
            .map(Stat::from)
            .map_err(|errno| Error::from_errno("stat", "stage", errno))
    }

    /// Takes the file `name` of `from`, which no process has open any more, into the stage.
    ///
    /// A file with several names is copied, so that the other names do not share it. So is one with attributes of
    /// its own: they might be markers of overlayfs, which no command may forge, or an access list.
    pub(crate) fn adopt(stage: &Stage, from: &Dir, name: &OsStr, mode: u32) -> Result<Self> {
        from.open_up_file(name)?;
        let (file, stat) = from.open_file_entry(name)?;
        if stat.links > 1 || has_attributes(&file) {
            let copy = stage.file(mode, None)?;
            crate::layers::copy::copy_file(file, copy.file(), &stat)?;
            return Ok(copy);
        }
        let staged_name = stage.fresh_name();
        from.rename(name, stage.dir(), &staged_name)?;
        let held = Held::Named(staged_name);
        let mut staged = Self { stage: stage.clone(), held, file, mode: None, flight: None };
        staged.set_mode(mode)?;
        Ok(staged)
    }

    /// A copy of the file `name` in `from`, with its content and time. See [`StagedFile::adopt`].
    ///
    /// # Errors
    /// [`Error::NotFound`] when it has not `size` bytes any more.
    pub(crate) fn copied(stage: &Stage, from: &Dir, name: &OsStr, mode: u32, size: u64) -> Result<Self> {
        from.open_up_file(name)?;
        let (file, stat) = from.open_file_entry(name)?;
        if stat.size != size {
            return Err(Error::NotFound(name.to_string_lossy().into_owned()));
        }
        let copy = stage.file(mode, None)?;
        crate::layers::copy::copy_file(file, copy.file(), &stat)?;
        Ok(copy)
    }

    /// Gives the file to the service, when it is another user's.
    pub(crate) fn own(&self) -> Result<()> {
        let own = rustix::process::geteuid();
        if self.stat()?.owner == own.as_raw() {
            return Ok(());
        }
        self.set_owner(own.as_raw())
    }

    /// Makes the file visible as `name` in `dir`, in one step, replacing a file, link or whiteout of that name.
    pub(crate) fn place(mut self, dir: &Dir, name: &OsStr) -> Result<()> {
        if let Held::Unnamed(_) = self.held {
            self = self.into_stage()?;
        }
        let Held::Named(staged) = &self.held else { return Err(Error::NotFound("stage".to_owned())) };
        self.stage.projects().take_along(&self.file, dir)?;
        let stage = self.stage.dir();
        self.stage.put_in(stage, staged, dir, || stage.rename(staged, dir, name))?;
        self.held = Held::Placed;
        Ok(())
    }

    /// Gives a file in a live view the name `name` in `dir`, which is in the same mount.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`]; [`Error::NotFound`] when `dir` has gone.
    pub(crate) fn link(&self, dir: &Dir, name: &OsStr) -> Result<()> {
        dir.link(&self.file, name)?;
        if let Held::Unnamed(InView { passing, .. }) = &self.held {
            drop(passing.lock().take());
        }
        Ok(())
    }

    /// Brings the file into the stage when it is in a live view.
    pub(crate) fn into_stage(self) -> Result<Self> {
        match &self.held {
            Held::Named(_) | Held::Placed => Ok(self),
            Held::Unnamed(_) => {
                let copy = self.stage.file(self.mode.unwrap_or(0o644), None)?;
                self.copied_to(copy)
            }
        }
    }

    /// Brings the file into the view of `seat`, of which `root` is the root, unless it is there.
    pub(crate) fn into_view(self, seat: &ViewLease, root: &Dir, owner: Option<u32>) -> Result<Self> {
        match &self.held {
            Held::Unnamed(own) if own.lease.is_beside(seat) => Ok(self),
            Held::Named(_) | Held::Unnamed(_) | Held::Placed => {
                let mode = self.mode.map_or_else(|| self.stat().map(|stat| stat.mode), Ok)?;
                let copy = self.stage.file_in_view(mode, owner, seat.another(), root)?;
                self.copied_to(copy)
            }
        }
    }

    fn copied_to(mut self, mut copy: Self) -> Result<Self> {
        copy.flight = self.flight.take();
        let mut from = self.file.try_clone().map_err(|error| Error::from_io("dup", "stage", error))?;
        from.rewind().map_err(|error| Error::from_io("seek", "stage", error))?;
        crate::layers::copy::copy_file(from, &copy.file, &self.stat()?)?;
        copy.finish_keeping_time()?;
        Ok(copy)
    }
}

/// Tells whether a process may have given the file extended attributes.
fn has_attributes(file: &File) -> bool {
    let mut names = [0; 1024];
    match rustix::fs::flistxattr(file, &mut names) {
        Ok(length) => names
            .get(..length)
            .unwrap_or_default()
            .split(|byte| *byte == 0)
            // The system's own labels are on every file where there are any.
            .any(|name| !name.is_empty() && !name.starts_with(b"security.")),
        Err(rustix::io::Errno::OPNOTSUPP) => false,
        Err(_) => true,
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        let Held::Named(name) = &self.held else { return };
        if let Err(error) = self.stage.dir().remove_file(name) {
            tracing::warn!(%error, "a staged file stays until the next start");
        }
    }
}
