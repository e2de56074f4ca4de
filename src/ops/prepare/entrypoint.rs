//! Running scripts: the sandbox's, and one of each version's. A script that fails blocks nothing and is tried again.

use std::time::Duration;

use bytes::Bytes;
use policy::VersionId;
use sandbox::ExecResult;

use super::home::Home;
use super::site::{Site, quote};
use super::state::hash;
use super::steps::{Outcome, Steps};
use crate::ops::error::Result;

/// The last bytes of each stream of a script that are kept.
const OUTPUT_BYTES: usize = 8192;
/// The shortest and the longest time of a script, in seconds.
const SECONDS: std::ops::RangeInclusive<i64> = 1..=600;

/// The time that scripts have, of the number of seconds that was asked for.
#[must_use]
pub fn deadline(seconds: i64) -> Duration {
    Duration::from_secs(seconds.clamp(*SECONDS.start(), *SECONDS.end()).unsigned_abs())
}

/// Runs the sandbox's script in the workspace, unless the very script has succeeded there. Tells whether it was begun.
pub(super) async fn of_sandbox(
    site: &Site,
    home: &mut Home,
    script: &str,
    deadline: Duration,
    steps: &mut Steps,
) -> bool {
    const NAME: &str = "entrypoint";
    let (script, hash) = (script.trim(), hash(script));
    if home.state.entrypoint.as_ref() == Some(&hash) {
        steps.skip(NAME, "this script has succeeded in this sandbox");
        return false;
    }
    let begun = steps.begin(NAME);
    let (outcome, log) = run(site, &format!("exec bash -c {}", quote(script)), "", deadline).await;
    if outcome == Outcome::Done {
        home.state.entrypoint = Some(hash);
        home.write(site).await;
    }
    steps.end(begun, outcome, &log);
    true
}

/// Runs the script in the root of a version's directory, where there is one, unless that version's script has succeeded. Tells
/// whether it was begun.
pub(super) async fn of_version(
    site: &Site,
    home: &mut Home,
    (version, directory): (&VersionId, &str),
    deadline: Duration,
    steps: &mut Steps,
) -> bool {
    let name = format!("skill:{version}");
    if home.state.has(version) {
        steps.skip(name, "the script of this version has succeeded in this sandbox");
        return false;
    }
    let problem = match site.is_file(&format!("{directory}/entrypoint.sh")).await {
        Ok(true) => None,
        Ok(false) => Some("this version has no `entrypoint.sh` in its root".to_owned()),
        Err(error) => Some(format!("`entrypoint.sh` cannot be looked at: {error}")),
    };
    if let Some(problem) = problem {
        steps.skip(name, &problem);
        return false;
    }
    let begun = steps.begin(name);
    let (outcome, log) = run(site, "exec bash entrypoint.sh", directory, deadline).await;
    if outcome == Outcome::Done {
        home.state.add(version.as_str());
        home.write(site).await;
    }
    steps.end(begun, outcome, &log);
    true
}

/// Runs a script, and tells what became of it and what it wrote.
pub(super) async fn run(site: &Site, line: &str, directory: &str, deadline: Duration) -> (Outcome, String) {
    // The first and last halves are kept, so that of twice as much the last half is what ends the output.
    let ran = site.run_fenced(line, directory, Bytes::new(), deadline, 2 * OUTPUT_BYTES).await;
    judged(ran, deadline)
}

fn judged(ran: Result<ExecResult>, deadline: Duration) -> (Outcome, String) {
    let ran = match ran {
        Ok(ran) => ran,
        Err(error) => return (Outcome::Failed, error.to_string()),
    };
    let output = [&ran.stdout, &ran.stderr].map(|stream| tail(stream));
    let output =
        output.iter().filter(|text| !text.is_empty()).map(|text| text.trim_end()).collect::<Vec<_>>();
    let output = output.join("\n");
    if ran.timed_out {
        return (Outcome::TimedOut, format!("it was ended after {} s\n{output}", deadline.as_secs()));
    }
    if ran.is_success() && ran.signal.is_none() {
        return (Outcome::Done, output);
    }
    let how = ran
        .signal
        .map_or_else(|| format!("it exited with {}", ran.exit_code), |name| format!("{name} ended it"));
    (Outcome::Failed, format!("{how}\n{output}"))
}

/// The last bytes of a stream, as text.
fn tail(stream: &[u8]) -> String {
    let start = stream.len().saturating_sub(OUTPUT_BYTES);
    String::from_utf8_lossy(stream.get(start..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_stream_the_end_is_kept() {
        assert_eq!(
            tail(format!("BEGIN{}END", "x".repeat(20_000)).as_bytes()),
            format!("{}END", "x".repeat(8189))
        );
        assert_eq!(tail(b"\xffa"), "\u{fffd}a");
    }

    #[test]
    fn a_time_is_clamped_to_a_second_and_ten_minutes() {
        let seconds =
            [i64::MIN, -1, 0, 1, 30, 600, 601, 9999, i64::MAX].map(|asked| deadline(asked).as_secs());
        assert_eq!(seconds, [1, 1, 1, 1, 30, 600, 600, 600, 600]);
    }
}
