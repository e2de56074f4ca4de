//! Layers: the contract of a tree, the kinds of trees that keep it, and how changes come to be visible at once.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`tree`] | the contract of a tree; [`union`], [`live`] and [`plain`] keep it |
//! | [`stage`], `journal`, `record` | building things aside and making them visible at once |
//! | [`projects`] | the kernel keeps the limits of trees, where the file system does |
//! | `sharing` | files that versions of a skill share |
//! | `trash` | what was thrown away, until it is removed |

pub mod chain;
pub(crate) mod copy;
pub(crate) mod copy_hashed;
pub(crate) mod copy_merged;
pub mod deferred;
pub(crate) mod destination;
pub mod durability;
pub(crate) mod journal;
pub(crate) mod live;
pub(crate) mod names;
pub mod plain;
pub mod projects;
pub(crate) mod record;
pub(crate) mod room;
pub(crate) mod sharing;
pub(crate) mod stack;
pub mod stage;
pub(crate) mod trash;
pub mod tree;
pub mod union;
pub mod view;
pub(crate) mod walk;
pub(crate) mod whiteouts;
