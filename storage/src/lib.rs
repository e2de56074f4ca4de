//! The bytes of filesecbox on disk: layers, the merged view, archives, skills.

pub mod archive;
pub mod dir;
pub mod error;
pub mod metadata;
pub mod stat;

pub use dir::Dir;
pub use error::{Error, Result};
pub use stat::{ETag, Kind, Layer, Stat};
