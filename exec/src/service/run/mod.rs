//! One run, from its description to its result.
//!
//! | Module | Holds |
//! | --- | --- |
//! | [`spec`] | the description |
//! | [`begin`], [`hand_over`] | checking it, opening what it needs, handing it to a resident or to the launcher |
//! | [`handle`] | the run until its result |
//! | [`watch`] | waiting for its output, its reports and its deadline |
//! | [`stdio`], [`input`], [`output_pipe`], [`output`] | its standard streams and what is kept of them |
//! | [`live`] | taking part in it |
//! | [`unbegun`] | the result of one that was ended before its command began |
//! | [`result`], [`hint`] | what the caller gets |

pub(crate) mod begin;
pub(crate) mod hand_over;
pub(crate) mod handle;
pub(crate) mod hint;
pub(crate) mod input;
pub(crate) mod live;
pub(crate) mod output;
pub(crate) mod output_pipe;
pub(crate) mod result;
pub(crate) mod spec;
pub(crate) mod stdio;
pub(crate) mod unbegun;
pub(crate) mod watch;
