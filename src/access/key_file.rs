//! The key file that the service makes for itself when the configuration names none.

use std::ffi::OsStr;
use std::io::Write;

use storage::{Dir, Error};

use super::signed::{KeyError, Keys};

/// Name of the file in its directory.
const NAME: &str = "signing";

/// Makes a file with one new key in `dir`, mode 0600, unless there is one. Tells whether it made it.
///
/// # Errors
/// [`KeyError::Make`], [`KeyError::Random`].
pub fn make_unless_there(dir: &Dir) -> Result<bool, KeyError> {
    let (name, fresh) = (OsStr::new(NAME), OsStr::new("fresh"));
    let make = |source: Error| KeyError::Make(Box::new(source));
    dir.open_up_file(name).map_err(make)?;
    if dir.stat_entry(name).map_err(make)?.is_some() {
        return Ok(false);
    }
    let line = Keys::fresh_line()?;
    match dir.remove_file(fresh) {
        // A file that a crash left was never a key.
        Ok(()) | Err(Error::NotFound(_)) => {}
        Err(error) => return Err(make(error)),
    }
    let mut file = dir.create_file(fresh, 0o600).map_err(make)?;
    writeln!(file, "{line}")
        .and_then(|()| file.sync_all())
        .map_err(|source| make(Error::Io { operation: "write", path: NAME.to_owned(), source }))?;
    dir.rename_new(fresh, dir, name).and_then(|()| dir.sync()).map_err(make)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::ambient_open(place.path()).unwrap();
        assert!(make_unless_there(&dir).unwrap());
        let path = place.path().join(NAME);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let first = format!("{:?}", Keys::read(&path).unwrap());
        assert!(!make_unless_there(&dir).unwrap());
        assert_eq!(format!("{:?}", Keys::read(&path).unwrap()), first);
    }
}
