//! Files and commands of a user behind one trait, wherever they are. What an agent does with them is the crate `agent`.
//!
//! * [`Sandbox`]: what every backend does; [`SandboxExt`]: short forms over it.
//! * [`ServiceSandbox`]: a filesecbox service.
//! * `DockerSandbox` (feature `docker`): a container for each user.
//! * [`RemoteSandbox`]: machines that users lend, each behind a runner.
//! * [`NoneSandbox`]: this host itself, without walls.
//! * [`MemSandbox`]: the backend that tests compare others with.
//! * [`heads`]: the files of one name below directories, and how each begins.
//! * [`live`]: commands in which a caller takes part while they run.
//! * [`SandboxRouter`]: one in front of several. [`ReadOnly`], [`Limited`]: around another.
//! * [`wire`]: what a service and a runner say to each other.
//! * [`SandboxPath`], [`TreePath`], [`Version`], [`Error`], and the options and results of the methods.

mod adapters;
mod asked;
mod code;
#[cfg(any(feature = "conformance", test))]
pub mod conformance;
#[cfg(feature = "docker")]
mod docker;
mod error;
mod exec;
mod ext;
mod file;
pub mod heads;
pub mod live;
mod memory;
mod none;
mod path;
mod process;
mod remote;
mod router;
mod sandbox;
mod service;
mod tree_path;
mod version;
pub mod wire;

pub use adapters::{Limited, Limits, ReadOnly};
pub use code::Code;
#[cfg(feature = "docker")]
pub use docker::{DockerOptions, DockerSandbox};
pub use error::{Error, ErrorKind, Result};
pub use exec::{ExecResult, ExecSpec, OUTPUT_BYTES_DEFAULT, OUTPUT_BYTES_MAX, Program};
pub use ext::SandboxExt;
pub use file::{
    ByteStream, DirEntry, FileBody, FileInfo, FileKind, ReadOptions, WriteMode, WriteOptions,
    check_permissions,
};
pub use live::{LiveRun, LiveSpec};
pub use memory::{MemCommands, MemSandbox, MemTree};
pub use none::{NoneOptions, NoneSandbox, Reach, Root};
pub use path::{PATH_BYTES_MAX, SEGMENT_BYTES_MAX, SandboxPath, SandboxPathError};
pub use policy::{AgentId, UserId};
pub use process::{HeadTail, not_launched};
pub use remote::{
    Direction, Link, Machine, Outgoing, RemoteSandbox, TransferError, TransferUnderWay, Transfers,
};
pub use router::{Backends, Choice, IsWeb, Runners, SandboxRouter};
pub use sandbox::{DIR_ENTRIES_MAX, FILE_BYTES_MAX, Sandbox};
pub use service::{
    PrepareMode, PrepareRequest, PreparedSkill, PreparedStep, PreparedWorkspace, SelectedVersion, SentFile,
    ServiceOptions, ServiceSandbox, connector,
};
pub use tree_path::TreePath;
pub use version::{VERSION_BYTES_MAX, Version, VersionError};
