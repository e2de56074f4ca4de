//! `--status`: what a running runner tells of itself.

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Place, Service, TOKEN, end, signal};

/// What `--status` says, and whether a runner runs.
async fn status(place: &Place) -> (String, bool) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_filesecbox-runner"));
    let asked = command.arg("--status").env("XDG_RUNTIME_DIR", place.path("run")).output().await.unwrap();
    (String::from_utf8_lossy(&[asked.stdout, asked.stderr].concat()).into_owned(), asked.status.success())
}

#[tokio::test]
async fn a_running_runner_is_told_of_and_a_stopped_one_is_not() {
    let (place, service) = (Place::new(), Service::listen().await);
    std::fs::create_dir(place.path("run")).unwrap();
    assert!(!status(&place).await.1);
    let mut command = place.runner(&service.url(), &["--name", "laptop"]);
    let runner = command.env("XDG_RUNTIME_DIR", place.path("run")).spawn().unwrap();
    let mut connection = service.take().await;
    connection.ask("stat", json!({"path": ""})).await;
    let (told, runs) = status(&place).await;
    assert!(runs && told.contains("laptop of alice: connected since"), "{told}");
    assert!(told.contains(&service.url()) && told.contains("requests under way 0"), "{told}");
    assert!(!told.contains(TOKEN), "{told}");
    // The connection is lost: it says so, and why.
    drop(connection);
    let again = service.accept().await;
    let (told, _) = status(&place).await;
    assert!(told.contains("laptop of alice: not connected") && told.contains("last error"), "{told}");
    signal(&runner, Signal::TERM);
    drop(again);
    end(runner).await;
    assert_eq!(std::fs::read_dir(place.path("run/filesecbox-runner")).unwrap().count(), 0);
    assert!(!status(&place).await.1);
}
