//! Services that are killed while they are attacked, and started again on what is left.
//!
//! Before the attacks that count, each service that this suite started is attacked by two threads, in an order that a seed
//! repeats, and killed with SIGKILL at a random moment. What the cut attacks came to tells nothing. The audit log must be
//! whole then, and the baseline and the victim's things as they were. Then the service is started again, and the attacks
//! that count are made on what came back. `FILESECBOX_SECURITY_AGAIN=1` makes all of them once more, after a restart in
//! order. A part of the attacks (`-- NAME`) is made on fresh services, unless that is set.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::attack::Attack;
use crate::random::{Random, seed};
use crate::scene::Scene;
use crate::stage::Stage;
use crate::table::Theme;

/// The theme whose attacks have services of their own, which they kill.
const OF_THEIR_OWN: &str = "What a restart believes";
/// When a service is killed, in milliseconds after the first attack.
const KILLED_AFTER_MS: std::ops::Range<usize> = 300..3000;
/// Attacks on one service at once.
const AT_ONCE: usize = 2;

/// Whether all attacks are to be made once more after a restart in order.
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os("FILESECBOX_SECURITY_AGAIN").is_some()
}

/// Kills every service while it is attacked, and starts it again. Tells whether nothing was lost by it.
pub(crate) fn kill_all(stages: &mut [Stage], themes: &[Theme], before: &[Vec<(String, String)>]) -> bool {
    let seed = seed("killed under attack");
    let attacks: Vec<&Attack> =
        themes.iter().filter(|(theme, _)| *theme != OF_THEIR_OWN).flat_map(|(_, attacks)| *attacks).collect();
    // Of attacks that are cut there is nothing to read.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let told: Vec<String> = thread::scope(|threads| {
        let attacks = &attacks;
        let cutting: Vec<_> = stages
            .iter()
            .zip(seed..)
            .filter(|(stage, _)| stage.host.is_some())
            .map(|(stage, seed)| threads.spawn(move || cut(stage, attacks, Random::new(seed))))
            .collect();
        cutting.into_iter().map(|stage| stage.join().unwrap()).collect()
    });
    std::panic::set_hook(hook);
    for line in told {
        println!("{line}");
    }
    start_all(stages, before)
}

/// Starts every service again, in order. Tells whether nothing was lost by it.
pub(crate) fn restart_all(stages: &mut [Stage], before: &[Vec<(String, String)>]) -> bool {
    stages.iter_mut().filter_map(|stage| stage.host.as_mut()).for_each(|host| host.stop());
    start_all(stages, before)
}

/// Starts services that have ended.
fn start_all(stages: &mut [Stage], before: &[Vec<(String, String)>]) -> bool {
    let mut is_whole = true;
    for (stage, before) in stages.iter_mut().zip(before) {
        is_whole &= has_whole_audit(stage);
        stage.start_again();
        is_whole &= crate::is_unharmed(stage, before);
    }
    is_whole
}

/// Tells whether the audit log of a service that has ended, or is about to, is whole.
pub(crate) fn has_whole_audit(stage: &mut Stage) -> bool {
    let place = crate::place_of(stage);
    let Some(host) = &mut stage.host else { return true };
    let (is_whole, told) = host.verify_audit();
    if !is_whole {
        println!("{place}: the audit log is not whole: {told}");
    }
    is_whole
}

/// Attacks one service until it is killed. Tells when that was, and what was being done.
fn cut(stage: &Stage, attacks: &[&Attack], mut random: Random) -> String {
    let mut order: Vec<&Attack> = attacks.to_vec();
    for end in (1..order.len()).rev() {
        order.swap(end, random.below(end + 1));
    }
    let milliseconds = KILLED_AFTER_MS.start + random.below(KILLED_AFTER_MS.len());
    let is_dead = AtomicBool::new(false);
    let made: Vec<Vec<&str>> = thread::scope(|threads| {
        let (order, is_dead) = (&order, &is_dead);
        let attacking = (0..AT_ONCE).map(|first| {
            threads.spawn(move || {
                let mut made = Vec::new();
                for attack in order.iter().skip(first).step_by(AT_ONCE) {
                    if is_dead.load(Ordering::Relaxed) {
                        break;
                    }
                    made.push(attack.name);
                    crate::attempt(attack, &Scene::new(stage, attack.name));
                }
                made
            })
        });
        let attacking: Vec<_> = attacking.collect();
        thread::sleep(Duration::from_millis(u64::try_from(milliseconds).unwrap()));
        is_dead.store(true, Ordering::Relaxed);
        stage.host.as_ref().unwrap().kill();
        attacking.into_iter().map(|attacks| attacks.join().unwrap()).collect()
    });
    let last: Vec<&str> = made.iter().filter_map(|names| names.last().copied()).collect();
    let count: usize = made.iter().map(Vec::len).sum();
    let place = crate::place_of(stage);
    format!(
        "{place}: killed after {milliseconds} ms and {count} attacks, while making {}",
        last.join(" and ")
    )
}
