//! `filesecbox runner …`.

use serde_json::json;

use crate::founding::registered;
use crate::support::{Service, run_program};

/// What the command line says, and whether it succeeded.
pub(crate) fn said(args: &[&str], env: &[(&str, &str)]) -> (String, bool) {
    let output = run_program(args, env);
    let all = [output.stdout, output.stderr].concat();
    (String::from_utf8(all).unwrap(), output.status.success())
}

#[test]
fn an_operator_lists_chooses_cuts_and_revokes_machines() {
    let service = Service::start();
    let address = format!("http://{}", service.client.address);
    let env = [("FILESECBOX_SERVER", address.as_str())];
    let runner = |args: &[&str]| said(&[&["runner"], args].concat(), &env);
    assert_eq!(runner(&["list", "alice"]), (String::new(), true));
    let _laptop = registered(&service.client, "alice", &json!({ "name": "laptop", "isolation": "landlock" }));
    drop(registered(&service.client, "alice", &json!({ "name": "desk" })));
    let listed = runner(&["list", "alice"]).0;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        lines[1].starts_with("* laptop: connected since 20")
            && lines[1].ends_with("in /home/u/work, commands held by landlock"),
        "{listed}"
    );
    assert!(runner(&["choose", "alice", "desk"]).1);
    assert!(runner(&["list", "alice"]).0.contains("* desk"));
    assert!(runner(&["list", "alice", "--json"]).0.contains("\"active\": true"));
    assert!(runner(&["cut", "alice", "laptop"]).1);
    for name in ["laptop", "desk"] {
        assert!(runner(&["revoke", "alice", name]).1, "{name}");
    }
    let (told, is_done) = runner(&["revoke", "alice", "desk"]);
    assert!(!is_done && told.contains("there is no runner `desk` of this user"), "{told}");
}
