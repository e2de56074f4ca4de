//! Planning and extracting as the service does it, into a place that is then read back whole.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};

use storage::archive::{self, Compression, Options, Plan};
use storage::{Dir, Error, Kind};

/// What a path holds; `None` is a directory.
pub(crate) type Tree = BTreeMap<String, Option<(u32, Vec<u8>)>>;

/// An archive after it was taken in.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) plan: Plan,
    /// Everything written, by `skill/path`.
    pub(crate) tree: Tree,
    /// Modification times of files, in seconds.
    pub(crate) modified: BTreeMap<String, i64>,
}

impl Taken {
    pub(crate) fn ids(&self) -> Vec<&str> {
        self.plan.skills.iter().map(|skill| skill.id.as_str()).collect()
    }

    pub(crate) fn paths(&self) -> Vec<&str> {
        self.tree.keys().map(String::as_str).collect()
    }

    pub(crate) fn text(&self, path: &str) -> &str {
        let (_, content) = self.tree[path].as_ref().expect("a file");
        std::str::from_utf8(content).unwrap()
    }

    pub(crate) fn mode(&self, path: &str) -> u32 {
        self.tree[path].as_ref().expect("a file").0
    }
}

/// An upload as the service holds it, in memory because thousands of tests make one.
pub(crate) fn upload(bytes: &[u8]) -> File {
    let fd = rustix::fs::memfd_create("upload", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(fd);
    file.write_all(bytes).unwrap();
    file
}

pub(crate) fn take(bytes: &[u8]) -> Result<Taken, Error> {
    take_with(bytes, &Options::default())
}

pub(crate) fn take_with(bytes: &[u8], options: &Options) -> Result<Taken, Error> {
    take_file(&upload(bytes), options)
}

pub(crate) fn take_file(file: &File, options: &Options) -> Result<Taken, Error> {
    if let Some(compression) = Compression::of(file)? {
        let mut plain = upload(b"");
        compression.unpack(file, &options.limits, |bytes| {
            plain.write_all(bytes).unwrap();
            Ok(())
        })?;
        return take_file(&plain, options);
    }
    // Planning is given no directory, so that it cannot write.
    let plan = archive::plan(file, options)?;
    let place = tempfile::tempdir().unwrap();
    let outer = Dir::ambient_open(place.path()).unwrap();
    let stage = outer.create_dir(OsStr::new("stage"), 0o755).unwrap();
    let taken = take_into(file, plan, options, &stage);
    // Nothing may appear beside the directory given, after success and failure.
    assert_eq!(outer.entries().unwrap().len(), 1, "something was written outside");
    taken
}

fn take_into(file: &File, plan: Plan, options: &Options, stage: &Dir) -> Result<Taken, Error> {
    let mut total = 0;
    for skill in &plan.skills {
        let into = stage.create_dir(OsStr::new(skill.id.as_str()), 0o755).unwrap();
        let extracted = archive::extract(file, skill, &into, None)?;
        assert_eq!((extracted.files, extracted.bytes), (skill.files, skill.bytes));
        // The version worked out on the way is the one that the tree has.
        assert_eq!(extracted.version, storage::version::digest(&into).unwrap());
        total += extracted.bytes;
    }
    assert!(total <= options.limits.total_bytes);
    let (mut tree, mut modified) = (Tree::new(), BTreeMap::new());
    read_back(stage, "", &mut tree, &mut modified);
    Ok(Taken { plan, tree, modified })
}

/// Reads everything below `dir`; anything but files and directories fails the test.
pub(crate) fn read_back(dir: &Dir, prefix: &str, tree: &mut Tree, modified: &mut BTreeMap<String, i64>) {
    for entry in dir.entries().unwrap() {
        let path = format!("{prefix}{}", entry.name.to_str().expect("names are UTF-8"));
        match entry.kind {
            Kind::Directory => {
                let below = dir.open_dir_entry(&entry.name).unwrap();
                assert_eq!(below.stat().unwrap().mode, 0o755, "{path}");
                read_back(&below, &format!("{path}/"), tree, modified);
                tree.insert(path, None);
            }
            Kind::File => {
                let (mut file, stat) = dir.open_file_entry(&entry.name).unwrap();
                let mut content = Vec::new();
                file.read_to_end(&mut content).unwrap();
                modified.insert(path.clone(), i64::try_from(stat.modified_ns / 1_000_000_000).unwrap());
                tree.insert(path, Some((stat.mode, content)));
            }
            Kind::Symlink | Kind::Other => panic!("`{path}` is neither file nor directory"),
        }
    }
}

/// Asserts that an archive is refused for one reason, before anything is written.
#[macro_export]
macro_rules! refused {
    ($bytes:expr, $pattern:pat) => {{
        let bytes: Vec<u8> = $bytes;
        let file = $crate::archives::taking::upload(&bytes);
        match storage::archive::plan(&file, &storage::archive::Options::default()) {
            Err(storage::Error::Archive($pattern)) => {}
            other => panic!("expected {}, got {:?}", stringify!($pattern), other),
        }
    }};
}
