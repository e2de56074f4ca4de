//! [`Home`]: where the [`State`] of a sandbox is kept, in the home directory that its commands have.
//!
//! The home directory is no part of the workspace, so commands of the service's own read and write it, with the rights of the
//! user's commands and under their walls.

use bytes::Bytes;
use sandbox::ExecResult;

use super::fence::FIND;
use super::site::Site;
use super::state::State;

/// Bytes of a state that are read.
const STATE_BYTES_MAX: usize = 64 * 1024;
/// Longest path of a working directory, in bytes.
const WORKDIR_BYTES_MAX: usize = 4096;

/// The state of a sandbox, and whether it can be kept.
pub(super) struct Home {
    pub(super) state: State,
    /// Without a home directory scripts run, and nothing is recorded.
    is_kept: bool,
}

/// Tells the working directory, in one line.
const TELL: &str = "pwd";

/// Reads the working directory alone; `None` when it cannot be told.
pub(super) async fn workdir(site: &Site) -> Option<String> {
    let told = site.short(TELL, Bytes::new()).await.ok()?;
    first_line(&told).map(|(workdir, _)| workdir)
}

/// The first line of what a command wrote, if it is a working directory, and the rest.
fn first_line(told: &ExecResult) -> Option<(String, &[u8])> {
    let end = told.stdout.iter().position(|byte| *byte == b'\n').filter(|_| !told.timed_out)?;
    let (line, rest) = told.stdout.split_at_checked(end)?;
    let line = std::str::from_utf8(line).ok()?;
    let is_path =
        line.len() <= WORKDIR_BYTES_MAX && line.starts_with('/') && !line.contains(char::is_control);
    Some((line.to_owned(), rest.get(1..)?)).filter(|_| is_path)
}

impl Home {
    /// Reads the state: of the founding file, else of the later one; and the working directory, in the same command. Failing is no
    /// error: the state is empty then.
    pub(super) async fn read(site: &Site) -> (Self, Option<String>) {
        // By what bash does itself: each program that is started takes as long as the shell. Of what is larger than a state can
        // be, only the beginning is read, which is no state then.
        let script = format!(
            r#"{TELL}
{FIND}[ -d "$d" ] || mkdir -p "$d"; [ -w "$d" ] || exit 4
show() {{ if [ -n "$BASH_VERSION" ]; then IFS= read -r -d '' -n {STATE_BYTES_MAX} t < "$1"; printf '%s' "$t"
elif [ -n "$(find -L "$1" -size -65k)" ]; then cat "$1"; fi; }}
if [ -f "$d/state.json" ]; then printf 1; show "$d/state.json"
elif [ -e "$d/state.json" ]; then printf 1
elif [ -f "$h/.fastgpt/runtime/state.json" ]; then printf 2; show "$h/.fastgpt/runtime/state.json"
else printf 0; fi; exit 0"#
        );
        let unkept = Self { state: State::default(), is_kept: false };
        let told = match site.short(&script, Bytes::new()).await {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!(%error, "no state of scripts can be kept: they run, and run again");
                return (unkept, None);
            }
        };
        let (workdir, read) = match first_line(&told) {
            Some((workdir, read)) => (Some(workdir), read),
            None => (None, [].as_slice()),
        };
        if !told.is_success() || told.timed_out {
            tracing::warn!(
                exit_code = told.exit_code,
                "no state of scripts can be kept: they run, and run again"
            );
            return (unkept, workdir);
        }
        // A backend may send more than was asked for.
        let bounded = |text: &[u8]| text.get(..STATE_BYTES_MAX).unwrap_or(text).to_vec();
        let state = match read.split_first() {
            Some((b'1', text)) => State::founding(&bounded(text)),
            Some((b'2', text)) => State::later(&bounded(text)),
            _ => State::default(),
        };
        (Self { state, is_kept: true }, workdir)
    }

    /// Writes the state, whole or not at all. Failing is only logged.
    pub(super) async fn write(&self, site: &Site) {
        if !self.is_kept {
            return;
        }
        let script = format!(
            r#"{FIND}t=$d/.state.$$
if [ -n "$BASH_VERSION" ]; then IFS= read -r -d '' s; printf '%s' "$s" > "$t"; else cat > "$t"; fi && mv -f "$t" "$d/state.json""#
        );
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
