//! A holder of a lease that comes late, on all three stores: what it has sent does no harm when a later holder has been there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use filesecbox::config::BootstrapStep;
use filesecbox::ops::error::Initialising;
use filesecbox::ops::prepare::configured;
use tokio::time::timeout;

use crate::fixture::{Ask, Fixture, KEY, version};
use crate::leases::{MINUTE, benches, why};

/// The commands of a holder reach the sandbox when a later holder has been there: a suspended machine, or a message in a network.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_holder_has_sent_and_comes_late_does_not_begin() {
    for bench in benches().await {
        let fixture = bench.fixture();
        let (v1, v2) = (version(1), version(2));
        fixture.shelf.put(&v1, &[("SKILL.md", "one")]);
        fixture.shelf.put(&v2, &[("SKILL.md", "two")]);
        fixture.prepare(Ask::versions(&[&v1])).await;
        let late = &fixture.sandbox.late;
        for (text, ask) in [
            ("touch late", Ask::script("touch late")),
            // Another version in its place, and the one that is there away.
            ("mv ", Ask::versions(&[&v2])),
            ("state.$$", Ask::script("echo of-the-former")),
        ] {
            *late.commands.lock() = Some(text.to_owned());
            let replaced = async {
                late.sets_out().await;
                bench.replace().await;
            };
            let (ended, ()) = tokio::join!(fixture.try_prepare(ask), replaced);
            assert_eq!(why(ended), Initialising::Lost, "{}: {text}", bench.name);
            *late.commands.lock() = None;
            assert!(bench.direct.release(KEY, "another").await.unwrap());
            fixture.prepare(Ask::versions(&[&v1]).with_script("touch present")).await;
            let (state, projects) = (fixture.state(), fixture.projects());
            timeout(MINUTE, late.arrives()).await.unwrap();
            assert!(fixture.has("present") && !fixture.has("late"), "{}: {text}", bench.name);
            assert_eq!((fixture.state(), fixture.projects()), (state, projects), "{}: {text}", bench.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_of_a_store_that_has_forgotten_or_of_a_hostile_command_closes_no_workspace() {
    let fixture = Fixture::new();
    fixture.prepare(Ask::script("touch one")).await;
    let beside = fixture.state_file().parent().unwrap().to_owned();
    let mark = std::fs::read_dir(&beside).unwrap().map(|entry| entry.unwrap().path());
    let mark = mark.filter(|path| path.to_str().unwrap().contains("/lease-")).collect::<Vec<_>>();
    let [mark] = mark.as_slice() else { panic!("{mark:?}") };
    let marks = [
        "9999999999999999999999",
        "8999999999999999999",
        "no number",
        "",
        "1\n2\n",
        "$(touch hostile)",
        "-1",
    ];
    for (number, text) in marks.into_iter().enumerate() {
        std::fs::write(mark, text).unwrap();
        fixture.prepare(Ask::script(&format!("touch after-{number}"))).await;
        assert!(fixture.has(&format!("after-{number}")), "{text}");
        let left = std::fs::read_to_string(mark).unwrap();
        assert!(left.trim_end().parse::<u64>().is_ok() && left.trim_end() != text, "{left}");
    }
    assert!(!fixture.has("hostile"));
    // A pipe does not block, and a directory is in no one's way.
    std::fs::remove_file(mark).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, mark, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    timeout(Duration::from_secs(20), fixture.prepare(Ask::script("touch pipe"))).await.unwrap();
    std::fs::remove_file(mark).unwrap();
    std::fs::create_dir(mark).unwrap();
    fixture.prepare(Ask::script("touch directory")).await;
    assert!(fixture.has("pipe") && fixture.has("directory"));
    // A script of the user's that ends as the fence does is a script that failed, once.
    std::fs::remove_dir(mark).unwrap();
    let prepared = fixture.prepare(Ask::script("echo ran >> runs; exit 97")).await;
    assert_eq!(fixture.text("runs"), "ran\n");
    assert_eq!(crate::fixture::step(&prepared, "entrypoint").log, "it exited with 97\n");
}

/// Writes of a holder reach the sandbox when a later holder has written the same file: an input file, or one of a step of `bootstrap`.
async fn a_file_that_comes_late(path: &str, ask: impl Fn(&mut Fixture, &str) -> Ask) {
    for bench in benches().await {
        let mut fixture = bench.fixture();
        let late = Arc::clone(&fixture.sandbox.late);
        late.writes.store(true, Ordering::Release);
        let replaced = async {
            late.sets_out().await;
            bench.replace().await;
        };
        let former = ask(&mut fixture, "of the former");
        let (ended, ()) = tokio::join!(fixture.try_prepare(former), replaced);
        assert_eq!(why(ended), Initialising::Lost, "{}", bench.name);
        late.writes.store(false, Ordering::Release);
        assert!(bench.direct.release(KEY, "another").await.unwrap());
        let present = ask(&mut fixture, "of the present");
        fixture.prepare(present).await;
        timeout(MINUTE, late.arrives()).await.unwrap();
        assert_eq!(fixture.text(path), "of the present", "{}", bench.name);
        // What came late is where the next round removes it.
        let next = ask(&mut fixture, "of the next");
        fixture.prepare(next).await;
        let above = fixture.work().join(path).parent().unwrap().to_owned();
        for directory in [above, fixture.work()] {
            let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
            let left: Vec<_> = names.filter(|name| name.to_str().unwrap().starts_with(".tmp-")).collect();
            assert!(left.is_empty(), "{}: {left:?}", bench.name);
        }
        assert_eq!(fixture.text(path), "of the next", "{}", bench.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_file_of_a_former_holder_that_comes_late_replaces_nothing() {
    a_file_that_comes_late("user_files/in.txt", |_, text| Ask {
        files: vec![("in.txt".to_owned(), text.to_owned())],
        ..Ask::default()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_bootstrap_step_of_a_former_holder_that_comes_late_replaces_nothing() {
    a_file_that_comes_late("conf/mirror", |fixture, text| {
        let files = BTreeMap::from([("conf/mirror".to_owned(), text.to_owned())]);
        let step = BootstrapStep { name: "mirror".to_owned(), files, ..BootstrapStep::default() };
        fixture.bootstrap = configured(&[step]);
        Ask::default()
    })
    .await;
}
