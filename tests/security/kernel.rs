//! Attacks on the kernel: interfaces that no command needs and that have a history.

use std::fs;

use crate::attack::{Attack, Prey};
use crate::expectation::{Expectations, Expected, Finding};
use crate::files;
use crate::payload;
use crate::scene::Scene;

const OWN_PROC: Expected =
    Expected::NotStopped("the run's own `/proc` tells what the kernel tells every user of the machine");
const TRUE_PATH: Expected = Expected::NotStopped("a command works where its tree truly lies");

const MOUNT_TABLE: Expected =
    Expected::NotStopped("`/proc/self/mountinfo` names the directories that the run's own mounts are of");

/// Attacks that are told nothing.
const fn kernel(name: &'static str) -> Attack {
    Attack::payload("kernel.py", name)
}

/// Attacks that for the control are told a file of their own.
const fn on_own_file(name: &'static str) -> Attack {
    Attack::hunting("kernel.py", name, |_| Some(Prey { control: vec!["own".into()], evil: Vec::new() }))
}

pub(crate) const ATTACKS: &[Attack] = &[
    kernel("mounting_a_file_system"),
    kernel("mounting_with_the_new_calls"),
    kernel("listing_mounts"),
    kernel("changing_the_root_directory"),
    kernel("unsharing_namespaces"),
    kernel("joining_namespaces"),
    kernel("making_a_process_in_new_namespaces"),
    kernel("making_keys_in_the_kernel"),
    kernel("making_an_io_ring"),
    kernel("loading_a_bpf_program_or_map"),
    kernel("handling_page_faults_in_user_space"),
    kernel("counting_events_of_the_machine"),
    Attack::hunting("kernel.py", "watching_names_with_inotify", |scene| {
        Some(Prey::one(".", scene.stage.secret().parent()?.to_str()?))
    }),
    kernel("watching_files_with_fanotify"),
    kernel("changing_the_personality"),
    kernel("making_secret_memory"),
    kernel("asking_for_quotas_of_the_file_system"),
    kernel("adding_swap"),
    kernel("loading_a_kernel_module"),
    kernel("loading_another_kernel"),
    kernel("restarting_the_machine"),
    kernel("accounting_for_processes"),
    kernel("setting_the_clock"),
    Attack::driven("setting_the_name_of_the_machine", naming_the_machine),
    kernel("reading_the_kernels_log"),
    kernel("hanging_up_the_terminal"),
    kernel("reaching_for_ports_and_descriptor_tables"),
    Attack::driven("leaving_system_v_objects", leaving_objects),
    Attack::driven("leaving_a_posix_message_queue", leaving_objects),
    Attack::hunting("kernel.py", "opening_a_file_by_its_handle", files::secret),
    kernel("making_device_nodes"),
    on_own_file("opening_devices_of_the_machine"),
    on_own_file("writing_kernel_settings"),
    on_own_file("writing_to_sysfs"),
    on_own_file("reading_secrets_of_the_kernel"),
    on_own_file("learning_about_the_machine").expecting(Expectations::WALLED.namespaces(OWN_PROC)),
    Attack::hunting("kernel.py", "finding_where_trees_lie_on_the_host", |scene| {
        let root = scene.stage.root.to_str()?.to_owned();
        Some(Prey::one(root.clone(), root))
    })
    .expecting(Expectations::WALLED.landlock(TRUE_PATH).namespaces(MOUNT_TABLE)),
    kernel("calling_through_the_x32_numbers"),
    kernel("calling_through_the_32_bit_gate"),
    kernel("typing_into_the_terminal"),
    kernel("setting_id_bits"),
    kernel("regaining_identity_or_capabilities"),
    kernel("raising_limits"),
    Attack::driven("dumping_core", dumping_core),
];

fn naming_the_machine(scene: &Scene<'_>) -> Finding {
    let name = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let before = name();
    let finding = payload::hunt(scene, "kernel.py", &Prey::default());
    if scene.host().is_some() && name() != before { Finding::Through(name()) } else { finding }
}

/// Objects of System V and message queues live in the kernel until a process removes them.
fn leaving_objects(scene: &Scene<'_>) -> Finding {
    let finding = payload::hunt(scene, "kernel.py", &Prey::default());
    // Key 0x51ec in decimal.
    let left = ["shm", "sem", "msg"].into_iter().find(|kind| {
        let table = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
        table.lines().any(|line| line.trim_start().starts_with("20972 "))
    });
    match left {
        Some(kind) if scene.host().is_some() => Finding::Through(format!("left in {kind}")),
        _ => finding,
    }
}

fn dumping_core(scene: &Scene<'_>) -> Finding {
    let finding = payload::hunt(scene, "kernel.py", &Prey::default());
    let files = scene.client().files(&scene.workspace());
    match files.iter().find(|path| path.starts_with("core")) {
        Some(core) => Finding::Through(format!("left {core}")),
        None => finding,
    }
}
