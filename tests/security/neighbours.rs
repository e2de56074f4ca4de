//! Attacks of one user's commands on another's over the network that they live in. Two runs are under way at once.

use std::time::{Duration, Instant};

use crate::attack::Attack;
use crate::client::encoded;
use crate::client::pace::paced;
use crate::expectation::Finding;
use crate::payload::{self, Mode};
use crate::scene::{Ran, Scene, workspace_of};

const FILE: &str = "neighbours.py";

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("carrying_a_secret_over_the_loopback_address", carrying_a_secret),
    Attack::driven("holding_every_port", holding_every_port).alone(),
    Attack::driven("seeing_the_sockets_of_others", seeing_sockets),
    Attack::driven("reaching_the_proxy_without_a_network", reaching_the_proxy),
    Attack::driven("using_the_token_of_another_run", using_a_token),
];

/// How long a run may take to say that it is ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long two users may take to have every port: the kernel looks ever longer for the last ones of a network.
const TAKING: Duration = Duration::from_secs(30);
/// The deadline of runs, which last until the caller has seen enough, in milliseconds.
const DEADLINE_MS: u64 = 45_000;

/// A workspace with the payload in it.
struct Place<'a> {
    scene: &'a Scene<'a>,
    tree: String,
}

impl<'a> Place<'a> {
    /// The workspace of a user for the agent of all attacks.
    fn of(scene: &'a Scene<'a>, user: &str) -> Self {
        Self::at(scene, workspace_of(user))
    }

    /// The attacker's workspace for another agent.
    fn of_another_agent(scene: &'a Scene<'a>) -> Self {
        Self::at(scene, format!("/v1/sandbox/{}/other-agent", encoded(&scene.user)))
    }

    fn at(scene: &'a Scene<'a>, tree: String) -> Self {
        payload::plant(scene, &tree, FILE);
        Self { scene, tree }
    }

    fn run(&self, mode: Mode, network: Option<&str>, args: &[&str]) -> Ran {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut request = payload::request(self.scene, FILE, self.scene.name, mode, &args);
        request["timeout_ms"] = payload::deadline_ms(DEADLINE_MS).into();
        if let Some(network) = network {
            request["network"] = network.into();
        }
        self.scene.exec(&self.tree, &request)
    }

    /// The text that a run here has left in a file for the caller, once it has.
    fn told(&self, is_over: impl Fn() -> bool) -> String {
        let begun = Instant::now();
        loop {
            let reply = self.scene.client().get(format!("{}/raw/ports", self.tree));
            if reply.status == 200 {
                return String::from_utf8(reply.bytes(200).to_vec()).unwrap();
            }
            assert!(begun.elapsed() < paced(PATIENCE) && !is_over(), "the other run never got ready");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Has one run under way here while `meanwhile` goes on, which gets what that run has told.
fn while_running<T>(
    place: &Place<'_>,
    mode: Mode,
    args: &[&str],
    meanwhile: impl FnOnce(&str) -> T,
) -> (Ran, T) {
    std::thread::scope(|threads| {
        let run = threads.spawn(|| place.run(mode, None, args));
        let told = place.told(|| run.is_finished());
        let done = meanwhile(&told);
        place.scene.put(&place.tree, "enough", "");
        (run.join().unwrap(), done)
    })
}

/// The payload's own finding, which must be that it has obtained something.
fn must_obtain(scene: &Scene<'_>, ran: &Ran) {
    let found = payload::judge(scene, ran);
    assert!(matches!(found, Finding::Through(_)), "the control obtains nothing: {:?}", ran.result);
}

/// A receiver listens without asking for an address, and a sender of another user sends what it can.
fn carrying_a_secret(scene: &Scene<'_>) -> Finding {
    let control = scene.control().user;
    let own = Place::of(scene, &control);
    // Of one user and agent the one run may reach the other, where there are sockets.
    let (heard, ()) = while_running(&own, Mode::Control, &["hear"], |ports| {
        own.run(Mode::Control, None, &["send", ports]);
    });
    must_obtain(scene, &heard);
    let receiver = Place::of(scene, &scene.user);
    let senders = [Place::of(scene, &control), Place::of_another_agent(scene)];
    let (heard, ()) = while_running(&receiver, Mode::Evil, &["hear"], |ports| {
        for sender in &senders {
            // Fails when it did not come to its end.
            payload::judge(scene, &sender.run(Mode::Evil, None, &["send", ports]));
        }
    });
    payload::judge(scene, &heard)
}

/// Two users hold what ports they can, and a third needs one.
fn holding_every_port(scene: &Scene<'_>) -> Finding {
    let bystander = Place::of(scene, &format!("bystander_of_{}", scene.user));
    let asks = || payload::judge(scene, &bystander.run(Mode::Evil, None, &["ask"]));
    assert!(matches!(asks(), Finding::Through(_)), "the control gets no answer of the proxy");
    let places = [Place::of(scene, &scene.user), Place::of(scene, &scene.control().user)];
    std::thread::scope(|threads| {
        let holders: Vec<_> =
            places.iter().map(|place| threads.spawn(|| place.run(Mode::Control, None, &["hold"]))).collect();
        let begun = Instant::now();
        // Each process leaves a name that says how many it has, when it can have no more.
        let mut held = [0, 0];
        while holders.iter().any(|holder| !holder.is_finished()) && begun.elapsed() < paced(TAKING) {
            held = [0, 1].map(|index: usize| held_in(&places[index]));
            if held.iter().sum::<u64>() > 28_000 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(held.iter().all(|count| *count > 100), "the control: they hold {held:?}");
        let answered = asks();
        for place in &places {
            scene.put(&place.tree, "enough", "");
        }
        for holder in holders {
            must_obtain(scene, &holder.join().unwrap());
        }
        match answered {
            Finding::Through(_) => Finding::Stopped,
            _ => Finding::Through(format!("with {held:?} connections of others there is no port left")),
        }
    })
}

/// How many connections the processes of a holder have told of.
fn held_in(place: &Place<'_>) -> u64 {
    let files = place.scene.client().files(&place.tree);
    let counts =
        files.iter().filter_map(|name| name.strip_prefix("held-")?.split_once('-')?.1.parse::<u64>().ok());
    counts.sum()
}

fn seeing_sockets(scene: &Scene<'_>) -> Finding {
    let control = Place::of(scene, &scene.control().user);
    must_obtain(scene, &control.run(Mode::Control, None, &["look"]));
    let (attacker, other) = (Place::of(scene, &scene.user), Place::of_another_agent(scene));
    let look = |network| payload::judge(scene, &attacker.run(Mode::Evil, network, &["look"]));
    let (_, (_, found)) = while_running(&control, Mode::Control, &["have"], |_| {
        while_running(&other, Mode::Control, &["have"], |_| [None, Some("none")].map(look))
    });
    found.into_iter().find(|found| *found != Finding::Stopped).unwrap_or(Finding::Stopped)
}

/// While a run of the same user and agent has the proxy.
fn reaching_the_proxy(scene: &Scene<'_>) -> Finding {
    let place = Place::of(scene, &scene.user);
    must_obtain(scene, &place.run(Mode::Control, None, &[]));
    payload::judge(scene, &place.run(Mode::Evil, Some("none"), &[]))
}

fn using_a_token(scene: &Scene<'_>) -> Finding {
    let (attacker, other) = (Place::of(scene, &scene.user), Place::of(scene, &scene.control().user));
    must_obtain(scene, &attacker.run(Mode::Control, None, &["use"]));
    let (_, finding) = while_running(&other, Mode::Control, &["tell"], |url| {
        payload::judge(scene, &attacker.run(Mode::Evil, None, &["use", url]))
    });
    finding
}
