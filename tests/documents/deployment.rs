//! `Dockerfile` and the manifests in `deploy/` agree with each other and with the documents.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_yaml_ng::{Deserializer, Value};

use crate::read;

const COMPOSE: &str = "deploy/compose.yaml";
const KUBERNETES: &str = "deploy/kubernetes.yaml";

/// Every document of a YAML file.
fn documents(path: &str) -> Vec<Value> {
    let text = read(path);
    let each = Deserializer::from_str(&text).map(Value::deserialize);
    each.map(|document| document.unwrap_or_else(|error| panic!("{path}: {error}"))).collect()
}

/// The text after an instruction of the Dockerfile that stands there once.
fn instruction(name: &str) -> String {
    let text = read("Dockerfile");
    let mut found = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let argument = found.next().unwrap_or_else(|| panic!("no {name}")).to_owned();
    assert_eq!(found.next(), None, "{name} stands there twice");
    argument
}

/// The service's container in the Kubernetes manifest, and the pod it is in.
fn pod() -> (Value, Value) {
    let documents = documents(KUBERNETES);
    let deployment = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
    let pod = deployment["spec"]["template"]["spec"].clone();
    let containers = pod["containers"].as_sequence().unwrap();
    let container = containers.iter().find(|container| container["name"] == "filesecbox").unwrap().clone();
    (container, pod)
}

#[test]
fn the_manifests_and_the_image_agree_on_port_directory_and_user() {
    let (port, volume, user) = (instruction("EXPOSE"), instruction("VOLUME"), instruction("USER"));
    let dockerfile = read("Dockerfile");
    assert!(dockerfile.contains(&format!("FILESECBOX_LISTEN=0.0.0.0:{port} ")));
    assert!(dockerfile.contains(&format!("FILESECBOX_ROOT={volume}\n")));

    let service = &documents(COMPOSE)[0]["services"]["filesecbox"];
    assert_eq!(service["ports"][0], format!("127.0.0.1:{port}:{port}"));
    assert_eq!(service["volumes"][0], format!("data:{volume}"));
    assert_eq!(service["user"], user);

    let (container, pod) = pod();
    assert_eq!(container["env"][0]["value"], format!("127.0.0.1:{port}"));
    assert_eq!(container["volumeMounts"][0]["mountPath"], volume.as_str());
    let (uid, gid) = user.split_once(':').unwrap();
    for (field, id) in [("runAsUser", uid), ("runAsGroup", gid), ("fsGroup", gid)] {
        assert_eq!(pod["securityContext"][field].as_u64().unwrap().to_string(), id, "{field}");
    }
}

#[test]
fn the_manifests_give_no_privilege_and_stop_in_time() {
    let service = &documents(COMPOSE)[0]["services"]["filesecbox"];
    assert_eq!(service["cap_drop"][0], "ALL");
    assert_eq!(service["security_opt"][0], "no-new-privileges:true");
    assert_eq!(service["read_only"], true);
    for absent in ["privileged", "cap_add", "network_mode", "pid"] {
        assert!(service.get(absent).is_none(), "{absent}");
    }

    let (_, pod) = pod();
    assert_eq!(pod["automountServiceAccountToken"], false);
    for container in pod["containers"].as_sequence().unwrap() {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["capabilities"]["drop"][0], "ALL");
    }
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap() * 1000;
    assert!(grace > filesecbox::config::Config::default().shutdown_ms);
}

#[test]
fn the_unit_of_the_package_goes_with_its_settings_and_stops_in_time() {
    let unit = read("deploy/debian/filesecbox/filesecbox.service");
    let of = |name: &str| {
        let mut found = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let value = found.next().unwrap_or_else(|| panic!("no {name}="));
        assert_eq!(found.next(), None, "{name} stands there twice");
        value
    };
    let settings: toml::Table = toml::from_str(&read("deploy/debian/filesecbox/filesecbox.toml")).unwrap();
    let port = instruction("EXPOSE");
    assert_eq!(settings["root"].as_str(), Some(format!("/var/lib/{}", of("StateDirectory")).as_str()));
    assert_eq!(settings["listen"].as_str(), Some(format!("127.0.0.1:{port}").as_str()));
    assert_eq!((of("User"), of("NoNewPrivileges"), of("CapabilityBoundingSet")), ("filesecbox", "yes", ""));
    let grace_ms = of("TimeoutStopSec").parse::<u64>().unwrap() * 1000;
    assert!(grace_ms > filesecbox::config::Config::default().shutdown_ms);
}

#[test]
fn every_probe_is_a_command_of_the_program() {
    let health = instruction("HEALTHCHECK");
    assert!(health.ends_with(r#"CMD ["filesecbox", "health"]"#), "{health}");
    let (container, _) = pod();
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let command = container[probe]["exec"]["command"].as_sequence().unwrap();
        assert_eq!(command, &["filesecbox", "health"].map(Value::from), "{probe}");
    }
}

#[test]
fn every_variable_of_a_deployment_is_documented() {
    let documented = read("docs/CONFIGURATION.md");
    let mut found = BTreeSet::new();
    for path in ["Dockerfile", COMPOSE, KUBERNETES, "docs/DEPLOYMENT.md"] {
        let text = read(path);
        for (at, _) in text.match_indices("FILESECBOX_") {
            let name = text[at..].split(|c: char| !c.is_ascii_uppercase() && c != '_').next().unwrap();
            found.insert(name.to_owned());
        }
    }
    assert!(found.contains("FILESECBOX_ROOT"), "{found:?}");
    for name in found {
        assert!(documented.contains(&format!("| `{name}` |")), "{name} is not documented");
    }
}

#[test]
fn the_figures_of_the_document_that_follow_from_the_source_are_those_of_the_source() {
    let document = read("docs/DEPLOYMENT.md");
    let config = filesecbox::config::Config::default();
    let seconds = config.shutdown_ms / 1000;
    let gib = config.limits.runs.run_memory_bytes >> 30;
    let health = instruction("HEALTHCHECK");
    let interval = health.split("--interval=").nth(1).and_then(|rest| rest.split('s').next()).unwrap();
    for figure in [
        format!("`shutdown_ms` ({seconds} s)"),
        format!("with a run that does not end, {seconds}."),
        format!("`limits.runs.run_memory_bytes` ({gib} GiB)"),
        format!("`filesecbox health`, every {interval} seconds"),
        format!("the first check after {interval} s"),
    ] {
        let is_there = document.split_whitespace().collect::<Vec<_>>().join(" ").contains(&figure);
        assert!(is_there, "docs/DEPLOYMENT.md does not say `{figure}`");
    }
    // The parts of the image are rounded, each by half a megabyte at most.
    let (_, image) = document.split_once("\n| Image | ").unwrap();
    let numbers: Vec<i64> =
        image.lines().next().unwrap().split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [whole, parts @ ..] = &numbers[..] else { panic!("no sizes: {image}") };
    assert!((parts.iter().sum::<i64>() - whole).abs() <= 2, "{numbers:?}");
}
