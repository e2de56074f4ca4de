//! The registry: a table of what was published where (`agent_skill_registry`), for callers that ask about many skills.
//!
//! It follows from the data directory and decides nothing. An operation that publishes changes the disk first and
//! then has the rows of those shelves made again *from the disk*; no row comes from anywhere else. So rows cannot differ
//! from what a rebuild makes, and a registry that is lost, late or broken costs time and no publication.
//!
//! | File | Holds |
//! | --- | --- |
//! | `row` | a row, and how one is made |
//! | `question` | which rows are asked for |
//! | `sqlite` | the registry in a file |
//! | `memory` | the registry in memory: the shortest one that keeps the contract |
//! | [`contract`] | the laws of every registry |
//! | `keeper` | keeps a registry true to the disk |
//! | `worker` | the thread that it does so on |

pub mod contract;
mod memory;
mod message;
mod question;
mod row;
mod sqlite;
pub mod sync;
mod worker;

use storage::Shelf;
use thiserror::Error;

pub use self::memory::Memory;
pub use self::message::Answer;
pub use self::question::{Owners, Question};
pub use self::row::{Row, shelf_id};
pub use self::sqlite::Sqlite;
pub use self::sync::{RegistrySync, Synced};

/// Why a registry could not do what it was asked for.
#[derive(Debug, Error)]
pub enum Error {
    /// Its content makes no sense: it has to be made anew.
    #[error("the registry is broken: {0}")]
    Broken(String),
    /// It may be able to in a while: something else uses it, or there is no room.
    #[error("the registry cannot be used now")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The publications cannot be read from the disk.
    #[error(transparent)]
    Storage(#[from] storage::Error),
}

/// The result of something done with a registry.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The change of one shelf's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its row becomes this one.
    Put(Row),
    /// The shelf has no row any more.
    Remove(Shelf),
}

/// A table of rows, at most one for each shelf, sorted by agent, skill and user, the baseline first.
///
/// Names are compared by their bytes. One thread uses it, and no other changes it. [`contract::check`] says in
/// examples what each implementation does.
pub trait Registry: Send {
    /// Makes all `changes` or none, in their order.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Broken`].
    fn apply(&mut self, changes: &[Change]) -> Result<()>;

    /// The first rows that `question` asks for, at most [`Question::limit`], in order.
    ///
    /// # Errors
    /// As [`Registry::apply`].
    fn list(&mut self, question: &Question) -> Result<Vec<Row>>;

    /// Puts the rows that `tell` tells, each shelf once and in any order, in the place of all rows. When `tell` fails,
    /// nothing has changed. Returns how many there are.
    ///
    /// # Errors
    /// The error of `tell`; else as [`Registry::apply`].
    fn replace(&mut self, tell: &mut Telling<'_>) -> Result<usize>;
}

/// Hands rows to a function, one after the other, and stops when it fails.
pub type Telling<'a> = dyn FnMut(&mut dyn FnMut(Row) -> Result<()>) -> Result<()> + 'a;
