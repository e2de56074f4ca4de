//! [`Fence`]: a mark in the sandbox that a later holder of the lease leaves and an earlier one does not pass.
//!
//! A service that stands still between the word of the store and the command it was given for (a suspended machine, a message that
//! waits in a network) may have lost the lease when the command begins. So each command that cannot be taken back looks itself,
//! where it runs, for the mark of its own lease. A mark of a later epoch is not replaced, but for a holder that the store has
//! confirmed once more: a store that has forgotten everything must not close a workspace for ever.
//!
//! The user's commands can write the mark. All that they gain is that their own workspace is prepared without it.

use std::sync::atomic::{AtomicBool, Ordering};

use sandbox::ExecResult;
use sha2::{Digest, Sha256};

use crate::ops::lease::Lease;

/// Finds the home directory as `$h`: the variable, else what the shell knows. Exits with 3 when there is none.
pub(super) const FIND: &str = r#"h=$HOME; case $h in *[![:space:]]*) ;; *) h=$(sh -c 'echo ~');; esac
case $h in /*) ;; *) exit 3;; esac
d=$h/.fastgpt/agent-skill-entrypoints
"#;
/// The exit code of a command that was not begun.
const BARRED: i32 = 97;

/// The mark of one lease.
#[derive(Debug)]
pub(super) struct Fence {
    lease: Lease,
    /// The name of the file: two leases may share a home directory.
    file: String,
    /// Whether a command has left the mark.
    is_marked: AtomicBool,
}

/// A script that looks for the mark before it begins.
pub(super) struct Guarded {
    pub(super) script: String,
    /// What it writes instead of beginning. Nothing else that runs knows it.
    refusal: String,
}

impl Fence {
    pub(super) fn new(lease: Lease) -> Self {
        let mut name = hex::encode(Sha256::digest(lease.key().as_bytes()));
        name.truncate(16);
        Self { lease, file: format!("lease-{name}"), is_marked: AtomicBool::new(false) }
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// `script` behind the fence: the first one leaves the mark, the others look for it. Where there is no home directory, or no
    /// mark can be left, all pass.
    pub(super) fn guard(&self, script: &str) -> Guarded {
        let refusal = format!("barred-{:016x}", getrandom::u64().unwrap_or_default());
        let epoch = self.lease.epoch();
        let look = if self.is_marked.load(Ordering::Acquire) {
            format!(r#"[ ! -s "$f" ] || [ "$r" = {epoch} ]"#)
        } else {
            format!(r#"case $r in ''|*[!0-9]*) r=0;; esac; [ "$r" -le {epoch} ] && {}"#, self.mark())
        };
        let script = format!("({}{look}) || {{ printf {refusal}; exit {BARRED}; }}\n{script}", self.read());
        Guarded { script, refusal }
    }

    /// `script` after the mark, whatever was there.
    pub(super) fn seize(&self, script: &str) -> String {
        format!("({}{})\n{script}", self.read(), self.mark())
    }

    /// Notes that a command has passed: it has left the mark if one can be left.
    pub(super) fn has_passed(&self) {
        self.is_marked.store(true, Ordering::Release);
    }

    /// Finds the file as `$f` and reads it as `$r`. Builtins of a POSIX shell alone: it stands before each command.
    fn read(&self) -> String {
        // Without a home directory there is nothing to look at.
        let find = FIND.replace("exit 3", "exit 0");
        // A pipe that a command has planted there would block.
        format!(
            "{find}f=$d/{}\n[ ! -e \"$f\" ] || [ -f \"$f\" ] || exit 0\nr=; {{ IFS= read -r r < \"$f\"; }} 2>/dev/null\n",
            self.file
        )
    }

    fn mark(&self) -> String {
        let epoch = self.lease.epoch();
        format!(r#"{{ {{ [ -d "$d" ] || mkdir -p "$d"; echo {epoch} > "$f"; }} 2>/dev/null || :; }}"#)
    }
}

impl Guarded {
    /// Whether the script was not begun, because the mark is of another lease.
    pub(super) fn has_barred(&self, ran: &ExecResult) -> bool {
        ran.exit_code == BARRED && !ran.timed_out && ran.stdout == self.refusal.as_bytes()
    }
}
