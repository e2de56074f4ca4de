//! Runs that may execute other programs than the configuration says: their walls are their own, and no other run's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr)]

mod support;

use std::path::Path;
use std::sync::Arc;

use exec::{Allowed, Error, RunSpec, Whitelist};
use policy::CommandPolicy;
use policy::command::Profile;
use support::{Sandbox, has};

/// As many kinds of walls as the library keeps, and some more.
const KINDS: usize = 20;

fn allowed(profile: Profile, extra: &[String]) -> Arc<Allowed> {
    let commands = CommandPolicy::new(profile, extra).unwrap();
    let code_in_trees = profile != Profile::Strict;
    Arc::new(Allowed { whitelist: Whitelist::from(&commands), code_in_trees })
}

fn sandbox() -> Option<Sandbox> {
    let sandbox = Sandbox::new()?;
    has("perl", Path::new("/usr/bin/perl").exists()).then_some(sandbox)
}

async fn with(sandbox: &Sandbox, allowed: Option<&Arc<Allowed>>, line: &str) -> exec::ExecResult {
    let spec = RunSpec { allowed: allowed.cloned(), ..sandbox.spec("bash", &["-c", line]) };
    sandbox.launcher.run(spec).await.unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn a_run_executes_what_its_own_list_names_and_the_next_without_one_does_not() {
    let Some(sandbox) = sandbox() else { return };
    let wider = allowed(Profile::Default, &["perl".to_owned()]);
    let narrower = allowed(Profile::Strict, &[]);
    // In turns, so that what stays of one run could be met by the next.
    for round in 0..4 {
        for (own, perl, head) in
            [(Some(&wider), true, true), (None, false, true), (Some(&narrower), false, false)]
        {
            let ran = with(&sandbox, own, "perl -e 'print \"ran\"'").await;
            assert_eq!(ran.stdout == "ran", perl, "{round}: {ran:?}");
            let ran = with(&sandbox, own, "echo x | head -1").await;
            assert_eq!(ran.stdout == "x\n", head, "{round}: {ran:?}");
        }
    }
    let direct = |own: Option<&Arc<Allowed>>| {
        let spec = RunSpec { allowed: own.cloned(), ..sandbox.spec("perl", &["-e", "print 1"]) };
        let launcher = Arc::clone(&sandbox.launcher);
        async move { launcher.run(spec).await }
    };
    assert_eq!(direct(Some(&wider)).await.unwrap().stdout, "1");
    for own in [None, Some(&narrower)] {
        assert!(matches!(direct(own).await, Err(Error::ProgramNotAllowed { .. })));
    }
}

#[tokio::test]
async fn a_run_whose_own_trees_hold_no_code_executes_nothing_of_them_beside_one_that_does() {
    let Some(sandbox) = sandbox() else { return };
    let strict = allowed(Profile::Strict, &[]);
    sandbox.file("script.sh", "#!/bin/sh\necho script\n");
    sandbox.file("copy", std::fs::read("/bin/cat").unwrap());
    for _ in 0..3 {
        let told = with(
            &sandbox,
            Some(&strict),
            "./script.sh; ./copy script.sh; cp copy $HOME/copy; $HOME/copy script.sh",
        )
        .await;
        assert_eq!(told.stdout, "", "{told:?}");
        let told = with(&sandbox, None, "./script.sh").await;
        assert_eq!(told.stdout, "script\n", "{told:?}");
    }
}

#[tokio::test]
async fn a_run_whose_own_trees_hold_no_code_makes_no_file_in_memory_beside_one_that_does() {
    let Some(sandbox) = sandbox() else { return };
    let strict = allowed(Profile::Strict, &[]);
    // Without MFD_NOEXEC_SEAL no command makes one.
    let line = "python3 -c 'import os\ntry: print(os.memfd_create(\"m\", 8) > 2)\nexcept OSError as error: print(error.errno)'";
    for _ in 0..3 {
        assert_eq!(with(&sandbox, Some(&strict), line).await.stdout, "1\n");
        assert_eq!(with(&sandbox, None, line).await.stdout, "True\n");
    }
}

#[tokio::test]
async fn kinds_of_walls_are_kept_in_bounded_number_and_made_again() {
    let Some(sandbox) = sandbox() else { return };
    let kind = |number: usize| allowed(Profile::Default, &["perl".to_owned(), format!("none-{number}")]);
    let mut open = Vec::new();
    for round in 0..2 {
        for number in 0..KINDS {
            let ran = with(&sandbox, Some(&kind(number)), "perl -e 'print \"ran\"'").await;
            assert_eq!(ran.stdout, "ran", "{round} {number}");
        }
        open.push(descriptors());
    }
    assert!(open[1] <= open[0] + 64, "{open:?}: walls that are not kept hold descriptors");
    let programs = sandbox.launcher.programs_of(&kind(0));
    assert_eq!(programs.missing().into_iter().filter(|name| name.starts_with("none-")).count(), 1);
}
