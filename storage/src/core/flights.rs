//! [`Flights`]: bytes that are on their way.

use std::collections::HashMap;

use parking_lot::Mutex;
use policy::{TreeId, UserId};

/// The bytes of each user in flight. Users without any take no room.
#[derive(Default)]
pub(crate) struct Flights {
    pub(crate) users: Mutex<HashMap<UserId, u64>>,
    pub(crate) trees: Mutex<HashMap<TreeId, u64>>,
}
