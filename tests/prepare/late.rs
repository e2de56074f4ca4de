//! A holder of a lease that comes late, on all three stores: what it has sent does no harm when a later holder has been there.

use std::time::Duration;

use filesecbox::ops::error::Initialising;
use tokio::time::{sleep, timeout};

use crate::fixture::{Ask, Fixture, KEY, version};
use crate::leases::{TTL, benches, why};

/// The commands of a holder reach the sandbox when a later holder has been there: a suspended machine, or a message in a network.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_holder_has_sent_and_comes_late_does_not_begin() {
    for bench in benches().await {
        let fixture = bench.fixture();
        let (v1, v2) = (version(1), version(2));
        fixture.shelf.put(&v1, &[("SKILL.md", "one")]);
        fixture.shelf.put(&v2, &[("SKILL.md", "two")]);
        fixture.prepare(Ask::versions(&[&v1])).await;
        let late = Duration::from_millis(2500);
        for (text, ask) in [
            ("touch late", Ask::script("touch late")),
            // Another version in its place, and the one that is there away.
            ("mv ", Ask::versions(&[&v2])),
            ("state.$$", Ask::script("echo of-the-former")),
        ] {
            *fixture.sandbox.late.lock() = Some((text.to_owned(), late));
            let replaced = async {
                sleep(TTL / 4).await;
                bench.replace().await;
            };
            let (ended, ()) = tokio::join!(fixture.try_prepare(ask), replaced);
            assert_eq!(why(ended), Initialising::Lost, "{}: {text}", bench.name);
            *fixture.sandbox.late.lock() = None;
            assert!(bench.direct.release(KEY, "another").await.unwrap());
            fixture.prepare(Ask::versions(&[&v1]).with_script("touch present")).await;
            let (state, projects) = (fixture.state(), fixture.projects());
            sleep(late).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn an_input_file_of_a_former_holder_that_comes_late_replaces_nothing() {
    for bench in benches().await {
        let fixture = bench.fixture();
        let file = |text: &str| Ask { files: vec![("in.txt".to_owned(), text.to_owned())], ..Ask::default() };
        let late = Duration::from_millis(2500);
        *fixture.sandbox.late_writes.lock() = Some(late);
        let replaced = async {
            sleep(TTL / 4).await;
            bench.replace().await;
        };
        let (ended, ()) = tokio::join!(fixture.try_prepare(file("of the former")), replaced);
        assert_eq!(why(ended), Initialising::Lost, "{}", bench.name);
        *fixture.sandbox.late_writes.lock() = None;
        assert!(bench.direct.release(KEY, "another").await.unwrap());
        fixture.prepare(file("of the present")).await;
        let written = async {
            while fixture.sandbox.late_written() == 0 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(60), written).await.unwrap();
        assert_eq!(fixture.text("user_files/in.txt"), "of the present", "{}", bench.name);
        // What came late is where the next round removes it.
        fixture.prepare(file("of the next")).await;
        let names = std::fs::read_dir(fixture.work().join("user_files")).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["in.txt"], "{}", bench.name);
    }
}
