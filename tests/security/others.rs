//! Attacks on other processes: the service, its launcher, and other processes of the machine.

use std::time::Duration;

use serde_json::json;

use crate::attack::{Attack, Prey};
use crate::expectation::Finding;
use crate::host::{Bystander, has_own_namespace};
use crate::payload;
use crate::scene::{Scene, workspace_of};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::hunting("others.py", "reading_environments_of_processes", |scene| {
        Some(Prey { evil: told(scene, &["OWN"]), control: vec!["OWN".into()] })
    }),
    Attack::hunting("others.py", "reading_command_lines_of_processes", |scene| {
        // What only the command line of the service holds.
        let root = scene.stage.root.to_str()?.to_owned();
        Some(Prey { evil: told(scene, &[&root]), control: vec![root] })
    }),
    Attack::hunting("others.py", "listing_open_files_and_threads_of_processes", processes),
    Attack::hunting("others.py", "reading_memory_of_processes", processes),
    Attack::hunting("others.py", "copying_memory_of_processes", processes),
    Attack::hunting("others.py", "tracing_a_process", processes),
    Attack::hunting("others.py", "taking_descriptors_of_a_process", processes),
    Attack::hunting("others.py", "comparing_moving_and_advising_memory", processes),
    Attack::hunting("others.py", "walking_through_links_of_processes", |scene| {
        let secret = scene.stage.secret().to_str()?.to_owned();
        Some(Prey { control: vec!["own".into()], evil: told(scene, &[&secret]) })
    }),
    Attack::driven("overwriting_the_services_program", overwriting_the_program),
    Attack::driven("killing_a_process_of_the_host", killing_a_bystander),
    Attack::hunting("others.py", "signalling_the_service", processes),
    Attack::driven("asking_for_signals_of_a_file_to_go_to_others", killing_a_bystander),
    Attack::driven("killing_everyone", killing_everyone).alone(),
    Attack::hunting("others.py", "slowing_a_process", processes),
];

/// `first`, then the numbers of the service and its launcher where they are known.
fn told(scene: &Scene<'_>, first: &[&str]) -> Vec<String> {
    let numbers = scene.host().map(|host| host.processes()).unwrap_or_default();
    first.iter().map(|text| (*text).to_owned()).chain(numbers.iter().map(u32::to_string)).collect()
}

fn processes(scene: &Scene<'_>) -> Option<Prey> {
    scene.host()?;
    Some(Prey { control: Vec::new(), evil: told(scene, &[]) })
}

fn overwriting_the_program(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return Finding::Skipped("needs a look at the host".into()) };
    let before = std::fs::read(host.program()).unwrap();
    let program = host.program().display().to_string();
    let prey = Prey { control: vec!["own".into()], evil: told(scene, &[&program]) };
    let finding = payload::hunt(scene, "others.py", &prey);
    let same = std::fs::read(host.program()).unwrap() == before;
    if same { finding } else { Finding::Through("the service's program changed".into()) }
}

/// A process with the service's user id is the prey.
fn killing_a_bystander(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return Finding::Skipped("needs a look at the host".into()) };
    let mut bystander = Bystander::new(host.uid);
    let prey = Prey { control: Vec::new(), evil: vec![bystander.pid().to_string()] };
    let finding = payload::hunt(scene, "others.py", &prey);
    if bystander.is_dead() { Finding::Through("it is dead".into()) } else { finding }
}

/// `kill(-1)` must reach the attacker's own run alone: not the service, nor its host, nor a neighbour's run.
fn killing_everyone(scene: &Scene<'_>) -> Finding {
    let mut bystander = scene.host().map(|host| {
        // Those that wait for a run end with it.
        let stay = host.processes().into_iter().filter(|pid| !has_own_namespace(*pid)).collect::<Vec<_>>();
        (Bystander::new(host.uid), stay)
    });
    let neighbour = workspace_of("neighbour_of_a_killer");
    let client = scene.client().clone();
    let sleeping = std::thread::spawn(move || {
        let line = json!({ "shell": "sleep 1.5; echo survived" });
        client.post_json(format!("{neighbour}/exec"), &line).ok()["data"]["stdout"].clone()
    });
    // The neighbour has begun by then, or the attack proves nothing about it.
    std::thread::sleep(Duration::from_millis(300));
    let finding = payload::hunt(scene, "others.py", &Prey::default());
    let survived = sleeping.join().unwrap();
    if survived != "survived\n" {
        return Finding::Through(format!("a neighbour's run was killed: {survived}"));
    }
    if let (Some((bystander, before)), Some(host)) = (&mut bystander, scene.host()) {
        let gone: Vec<&u32> = before.iter().filter(|pid| !host.processes().contains(pid)).collect();
        if bystander.is_dead() || !gone.is_empty() {
            return Finding::Through(format!("killed outside: {gone:?}"));
        }
    }
    scene.client().get("/healthz").ok();
    finding
}
