//! Sandboxes around sandboxes: what they let through they answer as the one inside does.

mod limited;
mod read_only;

pub use self::limited::{Limited, Limits};
pub use self::read_only::ReadOnly;
