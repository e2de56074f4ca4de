//! The agent's side: files and commands of a user behind one trait, wherever they are.
//!
//! * [`Sandbox`]: what every backend does; [`SandboxExt`]: short forms over it.
//! * [`SandboxPath`], [`Error`], and the options and results of the methods.

mod error;
mod exec;
mod ext;
mod file;
mod path;
mod sandbox;

pub use error::{Error, ErrorKind, Result};
pub use exec::{ExecResult, ExecSpec, OUTPUT_BYTES_DEFAULT, Program};
pub use ext::SandboxExt;
pub use file::{ByteStream, DirEntry, FileBody, FileInfo, FileKind, ReadOptions, WriteMode, WriteOptions};
pub use path::{PATH_BYTES_MAX, SEGMENT_BYTES_MAX, SandboxPath, SandboxPathError};
pub use policy::UserId;
pub use sandbox::{FILE_BYTES_MAX, Sandbox};
