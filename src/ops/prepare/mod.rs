//! Preparing a workspace: it is brought to the state that a round of a conversation needs, from any other.
//!
//! In this order, all under one lease of the workspace, and on any [`Sandbox`](sandbox::Sandbox):
//!
//! 1. [`bootstrap`]: what the platform sets up.
//! 2. [`deploy`]: the selected versions of skills, and no others. A failure ends the round and leaves nothing half made.
//! 3. [`files`]: the input files of the round.
//! 4. [`entrypoint`]: the sandbox's script, then those of the versions, each once. A failure blocks nothing.
//! 5. [`scan`]: the skills that are there then.
//!
//! [`state`] and [`home`] keep which scripts have succeeded, [`packages`] is where versions come from, [`site`] the workspace,
//! [`fence`] what a former holder of the lease does not pass, [`temporary`] the names of what is written aside, [`steps`] what became
//! of each step, [`round`] the order above.

mod bootstrap;
mod deploy;
mod entrypoint;
mod fence;
mod files;
mod home;
mod packages;
mod place;
mod round;
mod scan;
mod site;
mod state;
mod steps;
mod temporary;

pub use self::bootstrap::{Bootstrap, configured};
pub use self::deploy::Selected;
pub(in crate::ops) use self::deploy::occupied;
pub use self::entrypoint::deadline;
pub use self::files::InputFile;
pub use self::packages::{EntryKind, Package, PackageEntry, Packages, Placing};
pub use self::round::{Mode, Preparation, Prepared, Round, prepare};
pub use self::scan::SkillInfo;
pub use self::site::Site;
pub use self::state::{State, hash};
pub use self::steps::{LOG_CHARACTERS, Outcome, Progress, Step};
