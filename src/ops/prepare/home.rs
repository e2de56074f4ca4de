//! [`Home`]: where the [`State`] of a sandbox is kept, in the home directory that its commands have.
//!
//! The home directory is no part of the workspace, so commands of the service's own read and write it, with the rights of the
//! user's commands and under their walls.

use bytes::Bytes;

use super::fence::FIND;
use super::site::Site;
use super::state::State;

/// Bytes of a state that are read.
const STATE_BYTES_MAX: usize = 64 * 1024;
/// The state of a sandbox, and whether it can be kept.
pub(super) struct Home {
    pub(super) state: State,
    /// Without a home directory scripts run, and nothing is recorded.
    is_kept: bool,
}

impl Home {
    /// Reads the state: of the founding file, else of the later one. Failing is no error: the state is empty then.
    pub(super) async fn read(site: &Site) -> Self {
        // By programs that commands have in every profile; what is larger than a state can be is not read at all.
        let script = format!(
            r#"{FIND}mkdir -p "$d" && [ -w "$d" ] || exit 4
small() {{ [ -f "$1" ] && [ -n "$(find -L "$1" -size -65k)" ]; }}
if [ -e "$d/state.json" ]; then printf 1; small "$d/state.json" && cat "$d/state.json"
elif small "$h/.fastgpt/runtime/state.json"; then printf 2; cat "$h/.fastgpt/runtime/state.json"
else printf 0; fi; exit 0"#
        );
        let unkept = Self { state: State::default(), is_kept: false };
        let read = match site.short(&script, Bytes::new()).await {
            Ok(read) if read.is_success() && !read.timed_out => read,
            Ok(read) => {
                tracing::warn!(
                    exit_code = read.exit_code,
                    "no state of scripts can be kept: they run, and run again"
                );
                return unkept;
            }
            Err(error) => {
                tracing::warn!(%error, "no state of scripts can be kept: they run, and run again");
                return unkept;
            }
        };
        // A backend may send more than was asked for.
        let bounded =
            |text: &[u8]| text.get(..STATE_BYTES_MAX).map(<[u8]>::to_vec).unwrap_or_else(|| text.to_vec());
        let state = match read.stdout.split_first() {
            Some((b'1', text)) => State::founding(&bounded(text)),
            Some((b'2', text)) => State::later(&bounded(text)),
            _ => State::default(),
        };
        Self { state, is_kept: true }
    }

    /// Writes the state, whole or not at all. Failing is only logged.
    pub(super) async fn write(&self, site: &Site) {
        if !self.is_kept {
            return;
        }
        let script = format!(r#"{FIND}t=$d/.state.$$; cat > "$t" && mv -f "$t" "$d/state.json""#);
        match site.short_fenced(&script, Bytes::from(self.state.to_json())).await {
            Ok(written) if written.is_success() && !written.timed_out => {}
            Ok(written) => {
                tracing::warn!(
                    exit_code = written.exit_code,
                    "failed to write the state of scripts: they run again"
                );
            }
            Err(error) => tracing::warn!(%error, "failed to write the state of scripts: they run again"),
        }
    }
}
