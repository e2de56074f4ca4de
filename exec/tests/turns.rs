//! Commands of one user begin in turns while another user is there, and at once while there is none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

mod support;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use exec::{Isolation, LauncherConfig, Tier};
use policy::UserId;
use policy::command::Profile;
use support::{Sandbox, config};

/// More than may begin at once.
const MANY: u32 = 200;
/// What so many commands wait at least: 50 begin at once, each of the others 5 ms after the one before.
const WAIT: Duration = Duration::from_millis(5 * (MANY as u64 - 50));

/// How many of [`MANY`] commands may begin at once. Those that may not have taken their turns, too.
fn begin_at_once(sandbox: &Sandbox) -> usize {
    let spec = sandbox.spec("echo", &[]);
    let may_begin = |_: &u32| {
        let turn = pin!(sandbox.launcher.wait_for_turn_of(&spec));
        turn.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    };
    (0..MANY).filter(may_begin).count()
}

#[tokio::test]
async fn commands_wait_for_their_turn_while_another_user_is_there() {
    for maximum in [Tier::Namespaces, Tier::Landlock] {
        let isolation = Isolation { maximum, ..Isolation::default() };
        let config = LauncherConfig { isolation, ..config(Profile::Default) };
        let Some(sandbox) = Sandbox::with(config, false) else { continue };
        assert_eq!(begin_at_once(&sandbox), MANY as usize, "{maximum:?}, alone");

        sandbox.launcher.note_user(&UserId::parse("someone-else").unwrap());
        let begun = Instant::now();
        assert!(begin_at_once(&sandbox) < MANY as usize, "{maximum:?}, in company");
        let result = sandbox.launcher.run(sandbox.spec("echo", &[])).await.unwrap();
        assert_eq!(result.exit_code, 0, "{result:?}");
        // What was waited is not the command's own time.
        let waited = begun.elapsed().saturating_sub(Duration::from_millis(result.duration_ms));
        assert!(waited >= WAIT, "{maximum:?}: {waited:?}");
    }
}
