//! What happens around every request, whichever handler it goes to.

pub(super) mod guard;
pub(super) mod head;
mod host;
pub(super) mod observe;
mod request_span;
mod rest;
mod slow_body;
