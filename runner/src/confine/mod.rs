//! What holds the commands: Landlock, around each of them alone.
//!
//! The runner stands before every command as its own [`launcher`], confines itself there and becomes the command. Nothing of the runner
//! itself is confined by that, and no code runs between `fork(2)` and `execve(2)`.
//!
//! * [`rules`]: which paths. [`calls`]: which system calls, where Landlock has no word. [`capabilities`]: what is left of
//!   root.

mod calls;
mod capabilities;
mod launcher;
mod rules;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sandbox::NoneOptions;
use tempfile::TempDir;
use thiserror::Error;

pub use self::launcher::main as launcher_main;
use self::rules::Rules;
pub use self::rules::SUBCOMMAND;

/// Variables that lead into the home, which confined commands do not see.
const OF_THE_HOME: [&str; 5] = ["HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"];
/// The Landlock ABI from which signals and abstract sockets are scoped (`landlock(7)`).
const ABI_SCOPES: i32 = 6;

/// Whether commands are confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Isolation {
    /// Where the kernel has Landlock
    #[default]
    Auto,
    /// By Landlock, or the runner does not start
    Landlock,
    /// Not at all
    None,
}

/// What was made for confined commands; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Confinement {
    /// The word of the registration.
    pub(crate) word: String,
    /// One line for a person: what commands may do.
    pub(crate) sentence: String,
    /// Whether the person should be warned.
    pub(crate) is_weak: bool,
    _temporary: Option<TempDir>,
}

/// Why commands cannot be confined as they must be.
#[derive(Debug, Error)]
pub(crate) enum ConfineError {
    /// `--isolation landlock` where there is none.
    #[error(
        "this kernel has no Landlock (Linux 5.13, in the list `lsm=`): start with `--isolation none` if the agent may do everything that you may"
    )]
    NoLandlock,
    /// A directory of `--readable`.
    #[error("`{0}` of `--readable` cannot be found")]
    Readable(PathBuf, #[source] std::io::Error),
    /// A temporary directory for the commands.
    #[error("no temporary directory can be made for commands")]
    Temporary(#[source] std::io::Error),
}

impl Confinement {
    /// Sets up `options` for commands in `workspace`, which may read and run what is in `readable`, too.
    ///
    /// # Errors
    /// [`ConfineError`].
    pub(crate) fn set_up(
        asked: Isolation,
        workspace: &Path,
        readable: &[PathBuf],
        options: &mut NoneOptions,
    ) -> Result<Self, ConfineError> {
        let abi = if asked == Isolation::None { None } else { rules::probe() };
        let Some(abi) = abi else {
            if asked == Isolation::Landlock {
                return Err(ConfineError::NoLandlock);
            }
            let why = if asked == Isolation::None { "as asked for" } else { "this kernel has no Landlock" };
            let sentence =
                format!("commands are not confined ({why}): the agent may do everything that you may");
            return Ok(Self { word: "none".to_owned(), sentence, is_weak: true, _temporary: None });
        };
        let temporary = tempfile::Builder::new().prefix("filesecbox-runner-").tempdir();
        let temporary = temporary.map_err(ConfineError::Temporary)?;
        let readable = readable.iter().map(|directory| {
            directory.canonicalize().map_err(|error| ConfineError::Readable(directory.clone(), error))
        });
        let mut read = readable.collect::<Result<Vec<_>, _>>()?;
        read.extend(search_path());
        let rules = Rules { own: vec![workspace.to_owned(), temporary.path().to_owned()], read };
        options.launcher = rules.to_words();
        options.inherited.retain(|name| !OF_THE_HOME.contains(&name.as_str()));
        let place = temporary.path().to_string_lossy().into_owned();
        options.variables = BTreeMap::from(["HOME", "TMPDIR"].map(|name| (name.to_owned(), place.clone())));
        let mut sentence = format!(
            "commands are confined by Landlock {abi}: they write the workspace and a temporary directory, read the system, and use the \
             network"
        );
        if abi < ABI_SCOPES {
            sentence.push_str("; this kernel lets them signal your other processes (Linux 6.12 does not)");
        }
        let home = std::env::var_os("HOME").map(PathBuf::from).and_then(|home| home.canonicalize().ok());
        let holds_home = home.is_some_and(|home| home.starts_with(workspace));
        if holds_home {
            sentence.push_str("; your home is in the workspace, with your keys: lend a directory in it");
        }
        let is_weak = holds_home || abi < ABI_SCOPES;
        Ok(Self { word: format!("landlock {abi}"), sentence, is_weak, _temporary: Some(temporary) })
    }
}

/// The directories of `PATH` that are not the home or above it.
fn search_path() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).and_then(|home| home.canonicalize().ok());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let holds_home = |directory: &Path| home.as_ref().is_some_and(|home| home.starts_with(directory));
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .filter_map(|directory| directory.canonicalize().ok())
        .filter(|directory| directory.parent().is_some() && !holds_home(directory))
        .collect()
}
