//! Devboxes: workspaces of one agent, each with a name and a life, for platforms that know sandboxes in that form.
//!
//! A devbox is a name, a phase that is kept across restarts, and a few words of its creator. Files and commands are those of the
//! workspace behind it; no rule about them is here.
//!
//! | File | Holds |
//! | --- | --- |
//! | [`name`] | the name of a devbox, and the workspace that it stands for |
//! | [`table`] | all devboxes: what is kept of each, which requests are in it, and whose turn it is to change it |
//! | [`life`] | creating, pausing, stopping, resuming and deleting one |

pub mod life;
pub mod name;
pub mod table;
