//! Packages: archives of versions of skills, which platforms deploy in workspaces. Each is immutable and kept under its id.
//!
//! A package is one file in `.filesecbox/archives`, named `{version}-{digest}`, the digest being the SHA-256 that its sender knows
//! it by. It gets that name by one rename when it is whole and on the disk, so that a crash leaves all of it or nothing. Versions
//! with the same bytes share one file, which has a name for each (link(2)). Its modification time is its last use: for a new one
//! those give way that were used longest ago. Its digest is looked at before it is unpacked: a disk that has lost bytes must not
//! deploy other ones. What is unpacked from packages is kept beside them, equal files once ([`unpacked`]).

mod deploy;
mod kept;
mod unpacked;

use std::fs::File;
use std::io::{self, Read, Seek};

use policy::{ArchiveLimits, RelPath, UserId, VersionId};
use sha2::{Digest, Sha256};

use self::kept::{Incoming, find, make_room, name_of, of_digest, use_now};
use self::unpacked::UnpackedFiles;
use super::archive::{self, Charset, Compression, Options, WholeTree};
use crate::core::store::Store;
use crate::core::usage::Flight;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::layers::stage::Draft;
use crate::layout;

/// Bytes that are copied at once.
const COPY_BYTES: usize = 512 * 1024;

/// A package that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFacts {
    /// The version that it is of.
    pub version: VersionId,
    /// The SHA-256 of its bytes, 64 hexadecimal digits in lower case.
    pub digest: String,
    /// Its length.
    pub bytes: u64,
}

/// A package that was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutPackage {
    /// The package.
    pub facts: PackageFacts,
    /// Whether it was not there before.
    pub is_new: bool,
    /// Packages that gave way to it.
    pub collected: usize,
}

/// A package that was unpacked aside. Dropping it removes what was unpacked.
pub struct UnpackedPackage {
    // Before its draft, which removes it.
    dir: Dir,
    files: Vec<(RelPath, Option<u32>)>,
    _draft: Draft,
    /// What was unpacked counts for the user it is meant for.
    _flight: Option<Flight>,
}

/// The packages that a store keeps. Cloning gives another handle of the same.
#[derive(Clone)]
pub struct Packages {
    store: Store,
}

impl Store {
    /// Its packages.
    #[must_use]
    pub fn packages(&self) -> Packages {
        Packages { store: self.clone() }
    }
}

impl Packages {
    /// Keeps the archive in `file` as the package of a version; `digest` is its SHA-256 in lower case. All packages together then
    /// have at most `total_bytes`: others give way, those used longest ago first.
    ///
    /// # Errors
    /// [`Error::Archive`] when it cannot be unpacked, [`Error::AlreadyExists`] when the version has other bytes;
    /// [`Error::TooLarge`]; [`Error::TooManyEntries`]; [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn put(
        &self,
        version: &VersionId,
        file: &File,
        digest: &str,
        limits: &ArchiveLimits,
        total_bytes: u64,
    ) -> Result<PutPackage> {
        self.check(file, digest, limits)?;
        self.keep(version, file, digest, total_bytes)
    }

    /// Checks that the archive in `file`, of this SHA-256, can be unpacked: what cannot be deployed is not kept. Its files are kept
    /// for when it is deployed.
    ///
    /// # Errors
    /// [`Error::Archive`]; [`Error::TooManyEntries`]; [`Error::Full`], [`Error::NoSpace`], [`Error::Io`].
    pub fn check(&self, file: &File, digest: &str, limits: &ArchiveLimits) -> Result<()> {
        self.store.admit_space()?;
        self.unpacked((file, digest), limits, None).map(drop)
    }

    /// Keeps the archive in `file` as [`Packages::put`] does, without a look at what is in it.
    ///
    /// # Errors
    /// As [`Packages::put`], but for [`Error::Archive`].
    pub fn keep(
        &self,
        version: &VersionId,
        file: &File,
        digest: &str,
        total_bytes: u64,
    ) -> Result<PutPackage> {
        self.store.admit_space()?;
        let bytes = file.metadata().map_err(|error| Error::from_io("stat", "package", error))?.len();
        if bytes > total_bytes {
            let what = "the package (`prepare.packages_bytes`)".to_owned();
            return Err(Error::TooLarge { what, limit: total_bytes });
        }
        let facts = PackageFacts { version: version.clone(), digest: digest.to_owned(), bytes };
        let held = self.store.packages_lock().lock();
        let dir = self.dir()?;
        if let Some((name, same)) = find(&dir, version)? {
            if same != digest {
                return Err(Error::AlreadyExists(format!("the package {version} with other bytes")));
            }
            let (kept, _) = dir.open_file_entry(&name)?;
            if digest_of(&kept)? == digest {
                use_now(&dir, &name)?;
                return Ok(PutPackage { facts, is_new: false, collected: 0 });
            }
            // A damaged copy gives way to the whole one.
            dir.remove_file(&name)?;
        }
        if let Some(shared) = self.share_in(&dir, &facts, total_bytes)? {
            return Ok(shared);
        }
        let collected = make_room(&dir, Incoming { packages: 1, bytes }, total_bytes)?;
        let mut staged = self.store.stage().file(0o600, None)?;
        copy(file, |piece| staged.write(piece))?;
        staged.finish()?;
        interrupt::commit()?;
        staged.place(&dir, &name_of(version, digest))?;
        if self.store.is_strict() {
            dir.sync()?;
        }
        drop(held);
        Ok(PutPackage { facts, is_new: true, collected })
    }

    /// Keeps the package of a version whose bytes are those of another version's that is kept. `None` when none is.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when the version has other bytes; [`Error::Io`].
    pub fn share(&self, version: &VersionId, digest: &str, total_bytes: u64) -> Result<Option<PutPackage>> {
        let _held = self.store.packages_lock().lock();
        let dir = self.dir()?;
        if find(&dir, version)?.is_some() {
            return Ok(None);
        }
        let facts = PackageFacts { version: version.clone(), digest: digest.to_owned(), bytes: 0 };
        self.share_in(&dir, &facts, total_bytes)
    }

    /// Gives the file of another version that has the same bytes one more name. What the disk has damaged is not shared.
    fn share_in(&self, dir: &Dir, facts: &PackageFacts, total_bytes: u64) -> Result<Option<PutPackage>> {
        for name in of_digest(dir, &facts.digest)? {
            let (file, stat) = dir.open_file_entry(&name)?;
            if digest_of(&file)? != facts.digest {
                continue;
            }
            use_now(dir, &name)?;
            dir.link(&file, &name_of(&facts.version, &facts.digest))?;
            if self.store.is_strict() {
                dir.sync()?;
            }
            let collected = make_room(dir, Incoming { packages: 0, bytes: 0 }, total_bytes)?;
            let facts = PackageFacts { bytes: stat.size, ..facts.clone() };
            return Ok(Some(PutPackage { facts, is_new: true, collected }));
        }
        Ok(None)
    }

    /// Opens the package of a version. That is a use of it.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Io`].
    pub fn open(&self, version: &VersionId) -> Result<(File, PackageFacts)> {
        let dir = self.dir()?;
        let found = find(&dir, version)?;
        let (name, digest) = found.ok_or_else(|| Error::NotFound(format!("the package {version}")))?;
        let (file, stat) = dir.open_file_entry(&name)?;
        use_now(&dir, &name)?;
        Ok((file, PackageFacts { version: version.clone(), digest, bytes: stat.size }))
    }

    /// What is known of the package of a version. That is no use of it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn facts(&self, version: &VersionId) -> Result<Option<PackageFacts>> {
        let dir = self.dir()?;
        let Some((name, digest)) = find(&dir, version)? else { return Ok(None) };
        let stat = dir.stat_entry(&name)?;
        Ok(stat.map(|stat| PackageFacts { version: version.clone(), digest, bytes: stat.size }))
    }

    /// Unpacks the package of a version aside; its bytes count as on their way to `user`.
    ///
    /// # Errors
    /// As [`Packages::open`] and [`Flight::take`]; [`Error::Damaged`] when it has other bytes than it was kept with: then it is
    /// removed; [`Error::Archive`] when the limits are lower than when it came; [`Error::Full`], [`Error::NoSpace`].
    pub fn unpack(
        &self,
        version: &VersionId,
        user: &UserId,
        limits: &ArchiveLimits,
    ) -> Result<UnpackedPackage> {
        self.store.admit_space()?;
        let package = self.open(version)?;
        if let Some(copied) = self.copied_aside(&package.1.digest, user, limits)? {
            return Ok(copied);
        }
        self.intact(&package)?;
        self.unpacked((&package.0, &package.1.digest), limits, Some(user))
    }

    /// Checks that the bytes of a package have the digest of its name; else it is removed.
    fn intact(&self, (file, facts): &(File, PackageFacts)) -> Result<()> {
        if digest_of(file)? == facts.digest {
            return Ok(());
        }
        self.remove_damaged(facts, file)?;
        Err(Error::Damaged(facts.version.to_string()))
    }

    /// Removes a package whose bytes are not those of its name, unless another request has put the right ones meanwhile.
    fn remove_damaged(&self, facts: &PackageFacts, file: &File) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let inode = |file: &File| {
            let stat = file.metadata().map_err(|error| Error::from_io("stat", "package", error))?;
            Ok::<_, Error>((stat.dev(), stat.ino()))
        };
        let _held = self.store.packages_lock().lock();
        let (dir, name) = (self.dir()?, name_of(&facts.version, &facts.digest));
        match dir.open_file_entry(&name) {
            Ok((present, _)) if inode(&present)? == inode(file)? => {
                tracing::error!(version = %facts.version, "a package that is kept is damaged: it is removed");
                dir.remove_file(&name)
            }
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Unpacks an archive of this SHA-256 aside, and keeps its files for the next time.
    fn unpacked(
        &self,
        (file, digest): (&File, &str),
        limits: &ArchiveLimits,
        user: Option<&UserId>,
    ) -> Result<UnpackedPackage> {
        let (plain, tree) = self.whole_tree(file, limits)?;
        let flight = user.map(|user| self.flight(user, tree.bytes)).transpose()?;
        let draft = self.store.stage().draft();
        let dir = self.store.stage().dir().create_dir(&draft.name, 0o700)?;
        let written = archive::extract_whole(plain.as_ref().unwrap_or(file), &tree, &dir)?;
        match UnpackedFiles::of(&self.store)?.keep(digest, limits, &dir, &written) {
            Err(error @ (Error::Abandoned | Error::TooLong { .. })) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, package = digest, "failed to keep the files of a package: it is unpacked when it is deployed");
            }
            Ok(()) => {}
        }
        Ok(UnpackedPackage { files: tree.paths()?, dir, _draft: draft, _flight: flight })
    }

    /// Copies the files of a package aside that are kept unpacked. `None` when they are not.
    fn copied_aside(
        &self,
        digest: &str,
        user: &UserId,
        limits: &ArchiveLimits,
    ) -> Result<Option<UnpackedPackage>> {
        let kept = UnpackedFiles::of(&self.store)?;
        let Some(list) = kept.list(digest, limits)? else { return Ok(None) };
        let flight = self.flight(user, list.taken().bytes)?;
        let draft = self.store.stage().draft();
        let dir = self.store.stage().dir().create_dir(&draft.name, 0o700)?;
        let files = list.paths();
        match kept.copy(digest, list, &dir) {
            Err(Error::Damaged(_)) => Ok(None),
            copied => {
                copied.map(|()| Some(UnpackedPackage { files, dir, _draft: draft, _flight: Some(flight) }))
            }
        }
    }

    /// Bytes that are on their way to a user.
    fn flight(&self, user: &UserId, bytes: u64) -> Result<Flight> {
        let mut flight = self.store.flight(user);
        flight.take(bytes)?;
        Ok(flight)
    }

    /// What an archive holds, and the plain tar of a compressed one.
    pub(super) fn whole_tree(
        &self,
        file: &File,
        limits: &ArchiveLimits,
    ) -> Result<(Option<File>, WholeTree)> {
        let plain = match Compression::of(file)? {
            None => None,
            Some(compression) => {
                let mut plain = self.store.unnamed_file()?;
                compression.unpack(file, limits, |bytes| {
                    io::Write::write_all(&mut plain, bytes)
                        .map_err(|error| Error::from_io("write", "package", error))
                })?;
                Some(plain)
            }
        };
        let options = Options { limits: limits.clone(), charset: Charset::default(), file_name: None };
        let tree = archive::plan_whole(plain.as_ref().unwrap_or(file), &options)?;
        Ok((plain, tree))
    }

    fn dir(&self) -> Result<Dir> {
        self.store.root().open_dir(&RelPath::parse(layout::ARCHIVES)?)
    }
}

impl UnpackedPackage {
    /// Everything in it, directories before what is in them; of a file its permission bits, of a directory `None`.
    #[must_use]
    pub fn paths(&self) -> &[(RelPath, Option<u32>)] {
        &self.files
    }

    /// Opens a file, and tells its length.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Io`].
    pub fn open(&self, path: &RelPath) -> Result<(File, u64)> {
        let (file, stat) = self.dir.open_file(path)?;
        Ok((file, stat.size))
    }
}

/// The SHA-256 of a file, 64 hexadecimal digits in lower case.
fn digest_of(file: &File) -> Result<String> {
    let mut hasher = Sha256::new();
    copy(file, |piece| {
        hasher.update(piece);
        Ok(())
    })?;
    Ok(hex::encode(hasher.finalize()))
}

/// Hands the bytes of a file to `sink`, piece by piece.
fn copy(file: &File, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut file = file.try_clone().map_err(|error| Error::from_io("dup", "package", error))?;
    file.rewind().map_err(|error| Error::from_io("seek", "package", error))?;
    let mut piece = vec![0; COPY_BYTES];
    loop {
        interrupt::check()?;
        let read = file.read(&mut piece).map_err(|error| Error::from_io("read", "package", error))?;
        match piece.get(..read) {
            Some([]) | None => return Ok(()),
            Some(bytes) => sink(bytes)?,
        }
    }
}
