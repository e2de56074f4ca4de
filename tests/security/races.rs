//! Attacks that change a path while the API is on its way along it.

use serde_json::json;

use crate::attack::Attack;
use crate::client::Reply;
use crate::expectation::Finding;
use crate::host;
use crate::payload::{self, Mode};
use crate::planting::wait_until_ready;
use crate::scene::Scene;

/// Fewest rounds of requests while the path changes; each round asks in several ways.
const ROUNDS: usize = 170;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("swapping_a_file_for_a_link_while_it_is_read", |scene| {
        race(scene, "swap_file_and_link", "secret", &|tree| {
            vec![
                format!("{tree}/raw/swapped"),
                format!("{tree}/content?path=swapped"),
                format!("{tree}/stat?path=swapped"),
            ]
        })
    })
    .everywhere(),
    Attack::driven("swapping_a_directory_for_a_link_while_it_is_read", |scene| {
        race(scene, "swap_directory_and_link", "", &|tree| {
            vec![
                format!("{tree}/raw/swapped/secret"),
                format!("{tree}/content?path=swapped/secret"),
                format!("{tree}/files?path=swapped"),
            ]
        })
    })
    .everywhere(),
    Attack::driven("swapping_a_directory_for_a_link_while_it_is_written", writing_race).everywhere(),
];

/// Makes rounds of `act` as long as a payload swaps, which it does at least a thousand times, and until one of them came through to the
/// attacker's own: `act` tells whether it did.
fn while_swapping(scene: &Scene<'_>, function: &str, target: &str, mut act: impl FnMut(&str, usize) -> bool) {
    let tree = scene.workspace();
    payload::plant(scene, &tree, "planting.py");
    let mut request = payload::request(scene, "planting.py", function, Mode::Evil, &[target.to_owned()]);
    // However slow a busy machine is: the number of swaps ends it, not the deadline.
    request["timeout_ms"] = json!(120_000);
    std::thread::scope(|threads| {
        let run = threads.spawn(|| scene.exec(&tree, &request));
        wait_until_ready(scene, &tree, || run.is_finished());
        let (mut round, mut came_through, mut is_enough) = (0, false, false);
        while !run.is_finished() || round < ROUNDS {
            came_through |= act(&tree, round);
            round += 1;
            if round >= ROUNDS && came_through && !is_enough {
                scene.write("enough", "");
                is_enough = true;
            }
        }
        let ran = run.join().unwrap();
        let swaps = ran.stdout().lines().find_map(|line| line.strip_suffix(" swaps")?.parse::<usize>().ok());
        assert!(swaps.is_some_and(|swaps| swaps >= 1000), "the path was hardly swapped: {}", ran.result);
    });
}

/// Reads while a payload swaps. The control: something of one's own is read in between.
fn race(scene: &Scene<'_>, function: &str, name: &str, targets: &dyn Fn(&str) -> Vec<String>) -> Finding {
    let Some(host) = scene.host() else { return Finding::Skipped("needs a file on the host".into()) };
    let outside = host.own_outside(&format!("outside-{}", scene.name), scene.canary());
    let mut loot = None;
    let mut own = false;
    while_swapping(scene, function, outside.join(name).to_str().unwrap(), |tree, _| {
        let replies: Vec<Reply> =
            targets(tree).into_iter().map(|target| scene.client().get(target)).collect();
        let is_read = replies.iter().any(|reply| reply.status == 200);
        own |= is_read;
        let texts = replies.iter().map(|reply| String::from_utf8_lossy(&reply.body));
        loot = loot.take().or_else(|| texts.into_iter().find_map(|text| scene.loot_in(&text)));
        is_read
    });
    assert!(own, "nothing was ever read");
    loot.map_or(Finding::Stopped, Finding::Through)
}

fn writing_race(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return Finding::Skipped("needs a look at the host".into()) };
    let outside = host.own_outside(&format!("outside-{}", scene.name), scene.canary());
    let before = host::inventory(&outside);
    let mut written = false;
    while_swapping(scene, "swap_directory_and_link", outside.to_str().unwrap(), |tree, round| {
        let client = scene.client();
        let file = format!("made-{}", round % 100);
        let put = client.put(format!("{tree}/raw/swapped/{file}"), "made");
        written |= put.status == 201;
        client.put(format!("{tree}/edit?path=swapped/secret"), "changed");
        let moving = json!({ "from": format!("swapped/{file}"), "to": "swapped/moved", "overwrite": true });
        client.post_json(format!("{tree}/move"), &moving);
        client
            .delete(format!("{tree}/file?path=swapped/{}", if round % 2 == 0 { "secret" } else { "moved" }));
        put.status == 201
    });
    assert!(written, "nothing was ever written");
    let after = host::inventory(&outside);
    if after == before { Finding::Stopped } else { Finding::Through(format!("{before:?} became {after:?}")) }
}
