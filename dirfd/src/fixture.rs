//! What the tests of several modules begin with.

use policy::RelPath;

use crate::dir::Dir;

/// An open directory with nothing in it, which goes with the first.
pub(crate) fn fixture() -> (tempfile::TempDir, Dir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = Dir::ambient_open(temp.path()).unwrap();
    (temp, dir)
}

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}
