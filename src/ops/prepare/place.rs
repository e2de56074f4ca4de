//! [`place`]: files that a round writes in a workspace, none of them in place where another service may prepare it meanwhile.
//!
//! Calls about files look for no fence. So where another process may write the workspace, files are written to a directory of the
//! round's own, and one command behind the fence gives them their names: a file that comes late replaces nothing.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sandbox::ErrorKind;

use super::site::{Site, quote};
use super::temporary::unlike;
use crate::ops::error::{Error, Result};

/// Files that one command names: names of 255 quotes each must not make a longer argument than the kernel takes (128 KiB).
const NAMED_AT_ONCE: usize = 20;
/// The exit code of the command that names files where a directory has one of the names.
const IS_DIRECTORY: i32 = 3;

/// A file to be placed.
pub(super) struct Placed {
    /// Its path below the workspace. The directory above is there.
    pub(super) path: String,
    /// The content.
    pub(super) bytes: Bytes,
}

/// Writes the files. `waiting` is how the path of a directory begins in which they wait for their names, and which no other kind of
/// files uses.
///
/// # Errors
/// A file cannot be written, or a directory has its name.
pub(super) async fn place(site: &Site, waiting: &str, files: &[Placed]) -> Result<()> {
    if site.is_shared() && place_aside(site, waiting, files).await? {
        return Ok(());
    }
    for file in files {
        site.confirm().await;
        write(site, &file.path, file).await?;
    }
    Ok(())
}

/// Writes the files aside and gives them their names behind the fence. Tells whether that was possible: where no commands run,
/// no later holder of the lease leaves a mark either.
async fn place_aside(site: &Site, waiting: &str, files: &[Placed]) -> Result<bool> {
    let aside = unlike(waiting);
    let named = write_and_name(site, &aside, files).await;
    if matches!(named, Ok(true)) {
        // With what rounds have left that were ended before this: only one is under way.
        let sweep = format!(r#"for d in {waiting}-*; do [ -L "$d" ] || [ ! -d "$d" ] || rm -rf "$d"; done"#);
        if let Err(error) = site.name_fenced(&sweep).await {
            tracing::warn!(%error, "failed to remove what earlier rounds left of files: the next round tries again");
        }
        return Ok(true);
    }
    if let Err(error) = site.remove_all(&aside).await {
        tracing::warn!(%error, "failed to remove files that have no name yet: the next round removes them");
    }
    named
}

async fn write_and_name(site: &Site, aside: &str, files: &[Placed]) -> Result<bool> {
    site.make_dir(aside).await?;
    let mut moves = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let waits = format!("{aside}/{number}");
        write(site, &waits, file).await?;
        moves.push((waits, file.path.as_str()));
    }
    for some in moves.chunks(NAMED_AT_ONCE) {
        if !name_files(site, some).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Moves each file to its name by one command. Tells whether commands run there at all.
async fn name_files(site: &Site, moves: &[(String, &str)]) -> Result<bool> {
    // One word tells where the script stops.
    let lines = moves.iter().enumerate().map(|(number, (from, to))| {
        let (from, to) = (quote(from), quote(&format!("./{to}")));
        format!("[ ! -d {to} ] || {{ echo {number}; exit {IS_DIRECTORY}; }}\nmv -f {from} {to} || exit 1\n")
    });
    let named = match site.name_fenced(&lines.collect::<String>()).await {
        Err(Error::Remote { kind: ErrorKind::Unsupported, .. }) => return Ok(false),
        named => named?,
    };
    let at = named.stdout_text().trim().parse::<usize>().ok().and_then(|number| moves.get(number));
    match (named.exit_code, named.timed_out, at) {
        (0, false, _) => Ok(true),
        (IS_DIRECTORY, false, Some((_, to))) => Err(storage::Error::IsDirectory((*to).to_owned()).into()),
        _ => Err(Error::RunFailed(
            "files of the round could not get their names: look whether commands run in the workspace"
                .to_owned(),
        )),
    }
}

async fn write(site: &Site, path: &str, file: &Placed) -> Result<()> {
    let bytes = file.bytes.clone();
    site.write(path, stream::once(async { Ok(bytes) }).boxed(), None).await
}
