//! Attacks on the list of programs: executing what is on none, by every way in.

use std::path::Path;

use crate::attack::{Attack, Prey};
use crate::expectation::{Expectations, Expected, Finding};
use crate::files;
use crate::host;
use crate::scene::Scene;

const LOADED: Expected = Expected::NotStopped(
    "what is in the tree can be run and mapped, as scripts and packages need; it runs behind the same walls",
);

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::hunting("programs.py", "starting_perl_from_a_shell", perl),
    Attack::hunting("programs.py", "starting_perl_by_exec_from_python", perl),
    Attack::hunting("programs.py", "starting_perl_with_find", perl),
    Attack::hunting("programs.py", "starting_perl_with_xargs_and_env", perl),
    Attack::hunting("programs.py", "starting_perl_with_awk_and_sed", perl),
    Attack::hunting("programs.py", "starting_perl_as_an_interpreter", perl),
    Attack::hunting("programs.py", "executing_a_copy_or_a_link_of_perl", perl),
    Attack::hunting("programs.py", "naming_perl_through_proc", perl),
    Attack::hunting("programs.py", "loading_perl_with_the_dynamic_loader", perl),
    Attack::hunting("programs.py", "executing_an_uploaded_program", uploaded)
        .expecting(Expectations::WALLED.landlock(LOADED).namespaces(LOADED)),
    Attack::hunting("programs.py", "executing_a_memory_file", uploaded),
    Attack::hunting("programs.py", "executing_a_file_without_a_name", uploaded)
        .expecting(Expectations::WALLED.landlock(LOADED).namespaces(LOADED)),
    Attack::hunting("programs.py", "loading_an_uploaded_program_with_the_dynamic_loader", uploaded)
        .expecting(Expectations::WALLED.landlock(LOADED).namespaces(LOADED)),
    Attack::hunting("programs.py", "loading_a_memory_file_with_the_dynamic_loader", uploaded)
        .expecting(Expectations::WALLED.landlock(LOADED).namespaces(LOADED)),
    Attack::hunting("programs.py", "running_a_program_that_changes_identity", |_| {
        let programs =
            ["su", "sudo", "mount", "passwd", "newgrp", "chsh", "ping", "pkexec", "fusermount3", "newuidmap"];
        let evil = programs.iter().map(|program| format!("/usr/bin/{program}")).collect();
        Some(Prey { control: Vec::new(), evil })
    }),
    Attack::hunting("programs.py", "leaving_the_walls_with_native_code", files::secret),
    Attack::driven("asking_the_service_for_a_program_off_the_list", asking_directly).everywhere(),
];

/// An interpreter that is on no list, with code for it; `cat` and a file for the control.
fn perl(scene: &Scene<'_>) -> Option<Prey> {
    if scene.host().is_some() && !host::granted("perl", Path::new("/usr/bin/perl").exists()) {
        return None;
    }
    // Put together by the interpreter, so that a tool that prints the file is no evidence.
    scene.write("code.pl", "print \"GO\", \"T perl\\n\";\n");
    Some(Prey {
        control: vec!["/usr/bin/cat".into(), "own".into()],
        evil: vec!["/usr/bin/perl".into(), "code.pl".into()],
    })
}

/// A program that the caller uploaded: this machine's shell under another name.
fn uploaded(scene: &Scene<'_>) -> Option<Prey> {
    scene.write("mine", std::fs::read("/bin/sh").unwrap());
    scene.write("marker", "GOT uploaded\n");
    Some(Prey {
        control: vec!["/usr/bin/cat".into(), "own".into()],
        evil: vec!["mine".into(), "marker".into()],
    })
}

/// The program is the request's own command.
fn asking_directly(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    scene.write("code.pl", "print \"GO\", \"T perl\\n\";\n");
    scene.write("own", "GOT own\n");
    let control = scene.client().execute(&tree, "cat", &["own"]);
    assert_eq!(control["result"]["stdout"], "GOT own\n", "the control");
    scene.write("python3", "#!/usr/bin/perl\nprint \"GO\", \"T perl\\n\";\n");
    for command in [
        "perl",
        "/usr/bin/perl",
        "./python3",
        "bin/perl",
        "../../usr/bin/perl",
        "bash/../perl",
        "perl\0cat",
        "cat perl",
        "PERL",
        "perl ",
        "cat;perl",
        "$(perl)",
        "/workspace/python3",
        "busybox",
        "nc",
        "ssh",
        "mount",
        "sudo",
        "env",
        "",
    ] {
        let reply = scene.client().try_execute(&tree, command, &["code.pl"]);
        let answer = String::from_utf8_lossy(&reply.body);
        if answer.contains("GOT") || reply.status == 200 {
            return Finding::Through(format!("{command}: {} {answer}", reply.status));
        }
    }
    // A file of the tree does not take the place of a program either.
    let ran = scene.client().execute(&tree, "python3", &["-c", "print('the real one')"]);
    if ran["result"]["stdout"] == "the real one\n" {
        Finding::Stopped
    } else {
        Finding::Through(ran.to_string())
    }
}
