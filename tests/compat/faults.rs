//! The vendors' packages when requests fail: what they send again, how often, and what that leaves.

use std::time::Duration;

use crate::between::{Between, Fate};
use crate::clients::{PACKAGES, place, run};
use crate::doors::{AGENT, ON, TOKENS, create, told};
use crate::support::Service;

/// What a service says that will be there again in two seconds: longer than the packages wait of themselves.
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-type: application/json\r\ncontent-length: 31\r\nconnection: close\r\n\r\n{\"error\":{\"message\":\"stopped\"}}";
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// What becomes of a request, as its header `x-fate` says.
fn fate(head: &str) -> Fate {
    let is = |header: &str| head.to_ascii_lowercase().lines().any(|line| line == header);
    // Those that are sent again count themselves.
    let is_first = is("x-stainless-retry-count: 0");
    if is("x-fate: cut") && is_first {
        Fate::Cut
    } else if is("x-fate: unavailable") {
        Fate::Answered(UNAVAILABLE)
    } else {
        Fate::Passed
    }
}

/// A skill of two versions, with the first of which a user's changes began; and little room for that user.
fn service() -> Service {
    let limits = "[limits.disk]\nbytes = 1048576\n";
    let service = Service::configured(&format!("{ON}{limits}{}", TOKENS.concat()));
    let [keeper, engine] = ["keeper", "engine"].map(|token| service.client.with_token(token));
    told(&create(&keeper, AGENT, "kept", "1"), 200);
    engine.write("/v1/skills/alice/demo/kept", "own", "mine");
    told(&create(&keeper, &format!("{AGENT}/kept/versions"), "kept", "2"), 200);
    service
}

/// Has a program use a package, and counts what it asks.
pub(crate) fn drive(program: &[&str], vendor: &str, variables: &[(&str, &str)]) {
    let service = service();
    let between = Between::start(service.client.address, |head, _| fate(head));
    let url = format!("http://{}", between.address);
    run(&[program, &[vendor, &url]].concat(), variables);
    let of = |fate: &str| {
        let passed = between.passed().into_iter();
        passed.filter(|passed| passed.header("x-fate") == Some(fate)).collect::<Vec<_>>()
    };
    let statuses = |fate: &str| of(fate).iter().map(|passed| passed.status).collect::<Vec<_>>();
    assert_eq!(statuses("cut"), [None, Some(400), None, Some(200)], "{program:?}");
    assert_eq!(statuses("final"), [Some(409), Some(507)], "{program:?}");
    assert_eq!(statuses("unavailable"), [Some(503); 3], "{program:?}");
    let times: Vec<_> = of("unavailable").iter().map(|passed| passed.at).collect();
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] >= RETRY_AFTER, "{program:?}: asked again after {:?}", pair[1] - pair[0]);
    }
    // One publication for each that succeeded, and nothing of the one that was refused.
    let keeper = service.client.with_token("keeper");
    let versions = keeper.get("/v1/skills/x/demo/once/versions").ok();
    let numbers: Vec<_> =
        versions["data"].as_array().unwrap().iter().map(|one| one["number"].as_u64()).collect();
    assert_eq!(numbers, [Some(2), Some(1)], "{versions}");
    let of_alice = service.client.with_token("alice").get("/v1/skills/alice/demo/list").ok();
    assert!(!of_alice.to_string().contains("large"), "{of_alice}");
}

#[test]
fn packages_send_again_what_may_help_and_a_broken_connection_leaves_one_version() {
    std::thread::scope(|scope| {
        for package in PACKAGES {
            scope.spawn(move || {
                let Some(place) = place(package) else { return };
                let vendor = package.split('-').next().unwrap();
                let place = place.to_str().unwrap();
                drive(&["python3", "faults_client.py"], vendor, &[("PYTHONPATH", place)]);
            });
        }
    });
}
