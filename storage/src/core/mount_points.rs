//! [`Points`]: the directories that workspaces hold for runs.

use std::collections::HashMap;

use parking_lot::Mutex;
use policy::{SkillId, TreeId};

/// The mount points that workspaces hold for runs: of how many runs each is, and whether it was made for them. No more
/// than what runs under way ask for.
#[derive(Default)]
pub(crate) struct Points {
    pub(crate) held: Mutex<HashMap<PointKey, Point>>,
}

/// A workspace, and which directory of it: that of a skill, or the one that those lie in.
pub(crate) type PointKey = (TreeId, Option<SkillId>);

#[derive(Default)]
pub(crate) struct Point {
    pub(crate) runs: usize,
    pub(crate) was_made: bool,
}
