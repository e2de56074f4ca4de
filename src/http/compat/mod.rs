//! Doors for the clients of other vendors' registries of skills: the requests and answers of those, over the operations of this
//! service. Off unless they are switched on.
//!
//! A door is one route for all methods and paths below it, because clients send ids as they like. Roles, limits, records and checks
//! of pages are those of the routes that it stands for; a record has the route's name as its action, and the door.
//!
//! | Module | Holds |
//! | --- | --- |
//! | `request` | whose skills a request is about, and what it asks |
//! | `form` | the files of a skill, as forms bring them |
//! | `failure` | failures in the vendors' words |
//! | `listing` | pages, and texts that stand for versions |
//! | `anthropic`, `openai` | the two vendors: requests, and the shapes of their answers |

pub(super) mod anthropic;
pub(super) mod failure;
mod form;
mod listing;
pub(super) mod openai;
pub(super) mod request;
