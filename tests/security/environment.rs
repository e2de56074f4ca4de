//! Attacks on a command's environment and on its identity.

use serde_json::json;

use crate::attack::Attack;
use crate::expectation::Finding;
use crate::payload;
use crate::scene::{Scene, VICTIM};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("finding_secrets_in_the_environment", finding_secrets).everywhere(),
    Attack::driven("sending_variables_that_make_programs_run_code", sending_loaders).everywhere(),
    Attack::driven("sending_variables_of_the_platform", sending_platform).everywhere(),
    Attack::driven("finding_what_another_user_left_in_memory_or_on_disk", finding_left_overs),
];

/// The service has a token and the platform's variables in its own environment.
fn finding_secrets(scene: &Scene<'_>) -> Finding {
    let look = "env; set; export -p; cat /proc/self/environ /proc/$$/environ /proc/$PPID/environ 2> /dev/null | tr '\\0' \
                '\\n'; python3 -c 'import os; print(os.environb)'; echo end";
    scene.write("look.sh", look);
    let run = json!({ "command": "bash", "args": ["look.sh"], "env": { "OWN": "own-value" } });
    let control = scene.exec(&scene.workspace(), &run);
    assert!(control.stdout().contains("OWN=own-value"), "the control: {}", control.result);
    if let Some(loot) = scene.loot_in(control.stdout()) {
        return Finding::Through(loot);
    }
    let names = ["FILESECBOX_TOKEN", "KUBERNETES_", "SERVICE_ACCOUNT", "SECRET_KEY", "AWS_SECRET"];
    match names.into_iter().find(|name| control.stdout().contains(name)) {
        Some(name) => Finding::Through(name.to_owned()),
        None => Finding::Stopped,
    }
}

fn sending_loaders(scene: &Scene<'_>) -> Finding {
    scene.write("evil.sh", "echo GOT startup\n");
    scene.write("sitecustomize.py", "print('GOT startup')\n");
    let tree = scene.workspace();
    let ran = |name: &str, value: &str, shell: &str| {
        let mut variables = serde_json::Map::new();
        variables.insert(name.to_owned(), value.into());
        scene.client().post_json(format!("{tree}/exec"), &json!({ "shell": shell, "env": variables }))
    };
    let control = ran("HARMLESS", "evil.sh", "echo $HARMLESS").ok();
    assert_eq!(control["data"]["stdout"], "evil.sh\n", "the control");
    for (name, value) in [
        ("BASH_ENV", "evil.sh"),
        ("ENV", "evil.sh"),
        ("LD_PRELOAD", "./evil.so"),
        ("LD_LIBRARY_PATH", "."),
        ("LD_AUDIT", "./evil.so"),
        ("PYTHONSTARTUP", "evil.sh"),
        ("PYTHONHOME", "."),
        ("PROMPT_COMMAND", "echo GOT startup"),
        ("BASH_FUNC_cat%%", "() { echo GOT startup; }"),
    ] {
        let reply = ran(
            name,
            value,
            "cat evil.sh > /dev/null; python3 -c 'print(1)'; bash -c 'echo 1'; sh -c 'echo 1'",
        );
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        if reply.status != 400 || text.contains("GOT startup") {
            return Finding::Through(format!("{name} is passed on: {} {text}", reply.status));
        }
    }
    Finding::Stopped
}

fn sending_platform(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    let run = |name: &str| {
        let mut variables = serde_json::Map::new();
        variables.insert(name.to_owned(), "sent-value".into());
        scene.client().post_json(format!("{tree}/exec"), &json!({ "shell": "env", "env": variables }))
    };
    assert!(String::from_utf8_lossy(&run("LANGUAGE").body).contains("LANGUAGE=sent-value"), "the control");
    for name in
        ["KUBERNETES_SERVICE_HOST", "SERVICE_TOKEN", "SECRET_X", "secret_x", "Kubernetes_Port", "SECRET_"]
    {
        if String::from_utf8_lossy(&run(name).body).contains("=sent-value") {
            return Finding::Through(name.to_owned());
        }
    }
    Finding::Stopped
}

/// Runs of two users one after the other, in the same directories and the same processes' memory.
fn finding_left_overs(scene: &Scene<'_>) -> Finding {
    let victim = Scene { stage: scene.stage, name: scene.name, user: VICTIM.to_owned() };
    // No file, which would stay in the victim's tree when the service is killed meanwhile.
    let copying = "cat secret; cp secret \"$TMPDIR/copy\"; cp secret \"$HOME/copy\"; cp secret /tmp/copy";
    let victims = victim.exec(&victim.workspace(), &json!({ "command": "bash", "stdin": copying }));
    assert!(victims.stdout().contains(scene.canary()), "the control: {}", victims.result);
    let look = "find \"$HOME\" \"$TMPDIR\" /tmp /var/tmp /dev/shm -type f -exec cat {} + 2> /dev/null; cat /tmp/copy; \
                python3 -c 'import mmap; print(bytes(mmap.mmap(-1, 1 << 26)).strip(b\"\\0\")[:100])'; echo; echo end";
    payload::judge(scene, &scene.script(&scene.workspace(), look))
}
