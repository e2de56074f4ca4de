//! Attacks on the disk: taking more of it than one may, by other means than writing.

use crate::attack::Attack;

pub(crate) const ATTACKS: &[Attack] = &[Attack::payload("disk.py", "setting_a_project_or_flags_of_a_file")];
