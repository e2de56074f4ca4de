//! Registration, loss and farewell.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Place, Service, TOKEN, end, signal};

#[tokio::test]
async fn the_first_frame_registers_and_names_what_is_lent() {
    let (place, service) = (Place::new(), Service::listen().await);
    let _runner =
        place.runner(&service.url(), &["--name", "laptop", "--shell", "/bin/bash"]).spawn().unwrap();
    let (_connection, first) = service.accept().await;
    assert_eq!((&first["type"], &first["user_id"]), (&json!("register"), &json!("alice")));
    let body = &first["body"];
    assert_eq!(
        (&body["user_id"], &body["auth_token"], &body["name"]),
        (&json!("alice"), &json!(TOKEN), &json!("laptop"))
    );
    assert_eq!((&body["workspace"], &body["shell"]), (&json!(place.path("w")), &json!("/bin/bash")));
    assert_eq!(body["features"], json!(["exact", "live", "transfers", "swap"]));
}

#[tokio::test]
async fn a_token_of_the_command_line_or_a_file_is_used_and_stays_out_of_the_command_line_and_the_log() {
    let (place, service) = (Place::new(), Service::listen().await);
    let file = place.path("token");
    std::fs::write(&file, format!(" {TOKEN}\n")).unwrap();
    let file = file.to_str().unwrap();
    let equals = format!("--token={TOKEN}");
    for arguments in [vec!["--token", TOKEN, "-v"], vec!["-v", &equals], vec!["--token-file", file, "-v"]] {
        let mut command = place.runner(&service.url(), &arguments);
        let runner = command.env_remove("FILESECBOX_RUNNER_TOKEN").spawn().unwrap();
        let (mut connection, first) = service.accept().await;
        assert_eq!(first["body"]["auth_token"], TOKEN);
        let line = std::fs::read(format!("/proc/{}/cmdline", runner.id().unwrap())).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains(TOKEN));
        connection.say(json!({"type": "register_ok"})).await;
        connection.ask("stat", json!({"path": ""})).await;
        signal(&runner, Signal::TERM);
        let (code, log) = end(runner).await;
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("served") && !log.contains(TOKEN), "{log}");
    }
}

#[tokio::test]
async fn a_token_that_the_agent_can_read_is_warned_of() {
    for (file, is_warned) in [("w/token", true), ("token", false)] {
        let (place, service) = (Place::new(), Service::listen().await);
        std::fs::write(place.path(file), TOKEN).unwrap();
        let file = place.path(file);
        let runner = place.runner(&service.url(), &["--token-file", file.to_str().unwrap()]).spawn().unwrap();
        let _connection = service.take().await;
        signal(&runner, Signal::TERM);
        let (_, log) = end(runner).await;
        assert_eq!(log.contains("put it elsewhere"), is_warned, "{log}");
    }
}

#[tokio::test]
async fn a_rejected_token_ends_the_process_with_two() {
    for code in ["AUTH_FAILED", "FORBIDDEN"] {
        let (place, service) = (Place::new(), Service::listen().await);
        let runner = place.runner(&service.url(), &[]).spawn().unwrap();
        let (mut connection, _) = service.accept().await;
        connection
            .say(json!({"type": "error", "body": {"code": code, "message": "authentication failed"}}))
            .await;
        let (exit, log) = end(runner).await;
        assert_eq!(exit, Some(2), "{log}");
        assert!(log.contains(code) && log.contains("check the token"), "{log}");
    }
    for status in [401, 403] {
        let (place, service) = (Place::new(), Service::listen().await);
        let runner = place.runner(&service.url(), &[]).spawn().unwrap();
        let (mut stream, _) = service.listener.accept().await.unwrap();
        let mut head = [0; 1024];
        let _request = stream.read(&mut head).await.unwrap();
        let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        let (exit, log) = end(runner).await;
        assert_eq!(exit, Some(2), "{log}");
        assert!(log.contains(&status.to_string()), "{log}");
    }
}

#[tokio::test]
async fn a_lost_connection_is_made_again_after_growing_pauses() {
    let (place, service) = (Place::new(), Service::listen().await);
    let _runner = place.runner(&service.url(), &[]).spawn().unwrap();
    let mut last = None::<Instant>;
    for (pause, most) in [(0.0, 9.0), (1.0, 1.75), (2.0, 3.0), (4.0, 5.5)] {
        let (mut connection, _) = service.accept().await;
        let waited = last.map_or(Duration::ZERO, |last| last.elapsed()).as_secs_f32();
        assert!(waited >= pause && waited < most, "{waited} after {pause}");
        // Once taken, once refused for another reason than the token, once closed at once.
        if pause < 2.0 {
            connection.say(json!({"type": "register_ok"})).await;
        } else if pause < 4.0 {
            connection.say(json!({"type": "error", "body": {"code": "INVALID", "message": "m"}})).await;
        }
        last = Some(Instant::now());
    }
}

#[tokio::test]
async fn a_frame_that_is_too_large_ends_the_connection_and_not_the_runner() {
    let (place, service) = (Place::new(), Service::listen().await);
    let _runner = place.runner(&service.url(), &[]).spawn().unwrap();
    let mut connection = service.take().await;
    connection.say_in_vain(json!({"type": "stat", "more": "x".repeat(17 << 20)})).await;
    assert_eq!(connection.next().await, None);
    let mut connection = service.take().await;
    assert_eq!(connection.ask("stat", json!({"path": ""})).await["type"], "file_info");
}

#[tokio::test]
async fn silence_is_consent_to_a_founding_runner_only() {
    let (place, service) = (Place::new(), Service::listen().await);
    let _runner = place.runner(&service.url(), &["--founding"]).spawn().unwrap();
    let (mut connection, _) = service.accept().await;
    // Eleven seconds of silence, then a request.
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(connection.ask("stat", json!({"path": ""})).await["type"], "file_info");

    let runner = place.runner(&service.url(), &[]).spawn().unwrap();
    let (mut connection, _) = service.accept().await;
    let begun = Instant::now();
    assert_eq!(connection.next().await, None);
    assert!((9..13).contains(&begun.elapsed().as_secs()));
    signal(&runner, Signal::TERM);
    assert!(end(runner).await.1.contains("--founding"));
}

#[tokio::test]
async fn a_request_is_consent_and_is_answered() {
    let (place, service) = (Place::new(), Service::listen().await);
    let _runner = place.runner(&service.url(), &[]).spawn().unwrap();
    let (mut connection, _) = service.accept().await;
    assert_eq!(connection.ask("stat", json!({"path": ""})).await["body"]["name"], "w");
}

#[tokio::test]
async fn a_signal_says_farewell_kills_what_runs_and_ends_with_zero() {
    for kind in [Signal::TERM, Signal::INT] {
        let (place, service) = (Place::new(), Service::listen().await);
        let runner = place.runner(&service.url(), &[]).spawn().unwrap();
        let mut connection = service.take().await;
        let script = "trap '' TERM INT; setsid sleep 60 & echo $! $$ > pid; sleep 60";
        connection.say(json!({"id": "x", "type": "exec", "body": {"command": script, "shell": true}})).await;
        let processes = loop {
            let processes = std::fs::read_to_string(place.path("w/pid")).unwrap_or_default();
            if processes.ends_with('\n') {
                break processes;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let begun = Instant::now();
        signal(&runner, kind);
        assert_eq!(connection.next().await.unwrap(), json!({"type": "disconnect"}));
        let (code, log) = end(runner).await;
        assert_eq!(code, Some(0), "{log}");
        assert!(begun.elapsed() < Duration::from_secs(5));
        for process in processes.split_whitespace() {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        }
        assert_eq!(std::fs::read_dir(place.path("tmp")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_signal_ends_a_runner_that_is_not_connected() {
    let (place, service) = (Place::new(), Service::listen().await);
    let url = service.url();
    drop(service);
    let runner = place.runner(&url, &[]).spawn().unwrap();
    // Once the handler of the signal is there.
    let status = format!("/proc/{}/status", runner.id().unwrap());
    let catches = |status: &str| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
        caught
            .and_then(|caught| u64::from_str_radix(caught, 16).ok())
            .is_some_and(|caught| caught & 1 << 14 != 0)
    };
    while !catches(&std::fs::read_to_string(&status).unwrap()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    signal(&runner, Signal::TERM);
    assert_eq!(end(runner).await.0, Some(0));
}

#[tokio::test]
async fn a_run_goes_on_without_its_connection_and_ends_with_the_runner() {
    let (place, service) = (Place::new(), Service::listen().await);
    let runner = place.runner(&service.url(), &[]).spawn().unwrap();
    let (mut connection, _) = service.accept().await;
    let features = json!(["exact", "live"]);
    connection.say(json!({"type": "register_ok", "body": {"status": "ok", "features": features}})).await;
    let script = "setsid sleep 60 & echo $! $$ > pid; while :; do echo tick >> ticks; sleep 0.02; done";
    let begin = json!({"run": "on", "command": script, "shell": true, "timeout_ms": 60_000});
    assert_eq!(connection.ask("begin", begin).await["type"], "ok");
    let ticks = || std::fs::read(place.path("w/ticks")).map_or(0, |ticks| ticks.len());
    while ticks() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop((connection, service));
    // It goes on while no service is there.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = ticks();
    while ticks() == before {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    signal(&runner, Signal::TERM);
    let (code, log) = end(runner).await;
    assert_eq!(code, Some(0), "{log}");
    for process in std::fs::read_to_string(place.path("w/pid")).unwrap().split_whitespace() {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_told_before_anything_is_done() {
    let place = Place::new();
    let file = place.path("w-evil/s");
    let file = file.to_str().unwrap();
    for (server, arguments, told) in [
        ("http://h/ws/u", vec![], "wss://HOST/ws/USER"),
        ("ws://127.0.0.1:1/", vec![], "names no user"),
        ("ws://127.0.0.1:1/ws/u", vec!["--token-file", "/no/such"], "cannot be read"),
        ("wss://127.0.0.1:1/ws/u", vec!["--ca-file", file], "certificate"),
        ("ws://127.0.0.1:1/ws/u", vec!["--workspace", file], ""),
    ] {
        let (code, log) = end(place.runner(server, &arguments).spawn().unwrap()).await;
        assert!(code == Some(1) || code == Some(2), "{server}: {log}");
        assert!(log.contains(told), "{server}: {log}");
    }
    let mut without = place.runner("ws://127.0.0.1:1/ws/u", &[]);
    let (code, log) = end(without.env_remove("FILESECBOX_RUNNER_TOKEN").spawn().unwrap()).await;
    assert!(code == Some(1) && log.contains("--token-file"), "{log}");
}
