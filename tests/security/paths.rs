//! Attacks by the spelling of paths: in URLs, parameters, arguments and names.

use serde_json::json;

use crate::attack::Attack;
use crate::client::{Reply, encoded};
use crate::expectation::{Expectations, Expected, Finding};
use crate::host;
use crate::scene::{AGENT, SKILL, Scene, VICTIM};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("climbing_out_with_paths_of_the_api", climbing_paths).everywhere(),
    Attack::driven("climbing_out_with_names_of_users_agents_and_skills", climbing_names).everywhere(),
    Attack::driven("climbing_out_with_arguments_of_a_command", climbing_arguments).expecting(
        Expectations::EVERYWHERE
            .process(Expected::NotRun("arguments are checked, but no wall backs the check")),
    ),
    Attack::driven("writing_outside_with_paths_of_the_api", writing_paths).everywhere(),
    Attack::driven("asking_for_a_neighbours_things_with_ones_own_token", other_token).everywhere(),
];

/// Ways to write "one level up".
const UP: &[&str] = &[
    "../",
    "..%2f",
    "..%2F",
    "%2e%2e/",
    "%2e%2e%2f",
    ".%2e/",
    "%252e%252e%252f",
    "..%5c",
    "..\\",
    "%2e%2e%5c",
    "..%00/",
    "%c0%ae%c0%ae/",
    "..;/",
    "./../",
    "x/../../",
    "..//",
    ".../",
    "%ef%bc%8e%ef%bc%8e/",
    "..%ef%bc%8f",
    "%u002e%u002e/",
];

/// Paths that would lead to a canary: outside, and in the workspace of the victim.
fn destinations(scene: &Scene<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for up in UP {
        found.push(format!("{}{VICTIM}/{AGENT}/secret", up.repeat(2)));
        found.push(format!("{}outside/secret", up.repeat(5)));
        found.push(format!("{}skill/overlay/{VICTIM}/{AGENT}/{SKILL}/secret", up.repeat(3)));
        found.push(format!("/workspace/{}{VICTIM}/{AGENT}/secret", up.repeat(2)));
        found.push(format!("%2fworkspace%2f{}{VICTIM}%2f{AGENT}%2fsecret", up.repeat(2)));
    }
    if let Some(host) = scene.host() {
        let secret = host.secret().display().to_string();
        found.extend([secret.clone(), encoded(&secret), format!("/{secret}"), format!("file://{secret}")]);
        found.push(format!("/workspace{secret}"));
    }
    found.push(format!("{}/sandbox/{VICTIM}/{AGENT}/secret", scene.stage.root.display()));
    found
}

/// The first answer with a canary that its request did not name itself.
fn loot(scene: &Scene<'_>, replies: impl IntoIterator<Item = Reply>) -> Finding {
    let found = replies.into_iter().find_map(|reply| scene.loot_in(&String::from_utf8_lossy(&reply.body)));
    found.map_or(Finding::Stopped, Finding::Through)
}

fn climbing_paths(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    scene.write("own", "own");
    assert_eq!(scene.client().text(&tree, "/workspace/own"), "own", "the control");
    // Something to climb from.
    scene.write("x/y", "");
    let replies = destinations(scene).into_iter().flat_map(|path| {
        let client = scene.client();
        let mut replies: Vec<Reply> = ["content", "stat", "dir", "files"]
            .map(|route| client.get(format!("{tree}/{route}?path={path}")))
            .into();
        replies.push(client.get(format!("{tree}/raw/{path}")));
        replies.push(client.get(format!("{}/raw/{path}", scene.skill())));
        replies.push(client.post_json(format!("{tree}/move"), &json!({ "from": path, "to": "taken" })));
        let directory = path.trim_end_matches("/secret");
        let run = json!({ "shell": "cat secret", "dir": directory });
        replies.push(client.post_json(format!("{tree}/exec"), &run));
        replies
    });
    loot(scene, replies)
}

fn climbing_names(scene: &Scene<'_>) -> Finding {
    let own = format!("/v1/sandbox/{}/{AGENT}", scene.user);
    scene.write("own", "own");
    assert_eq!(scene.client().text(&own, "own"), "own", "the control");
    // As seen from the user's directory: the victim's, under a name that is not the victim's.
    let mut replies = Vec::new();
    for up in UP {
        for base in [
            format!("/v1/sandbox/{up}"),
            format!("/v1/sandbox/{}/{up}", scene.user),
            format!("/v1/skills/{up}"),
        ] {
            for rest in [
                format!("sandbox/{VICTIM}/{AGENT}"),
                format!("{VICTIM}/{AGENT}"),
                AGENT.to_owned(),
                "x".to_owned(),
            ] {
                replies.push(scene.client().get(format!("{base}{rest}/raw/secret")));
                replies.push(
                    scene.client().get(format!("{base}{}/content?path=secret", rest.replace('/', "%2f"))),
                );
            }
        }
    }
    for name in ["..", ".", ".filesecbox", "", " ", "a/b", "a\\b", "a\0b", "\u{202e}a", &"a".repeat(300)] {
        let name = encoded(name);
        replies.push(scene.client().get(format!("/v1/sandbox/{name}/{AGENT}/files")));
        replies.push(scene.client().get(format!("/v1/sandbox/{}/{name}/files", scene.user)));
        replies.push(scene.client().get(format!("/v1/skills/{}/{AGENT}/{name}/files", scene.user)));
        replies.push(scene.client().put(format!("/v1/sandbox/{name}/{AGENT}/raw/made"), "made"));
    }
    loot(scene, replies)
}

fn climbing_arguments(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    scene.write("own", "own");
    assert_eq!(scene.client().execute(&tree, "cat", &["own"])["result"]["stdout"], "own", "the control");
    let up = format!("../../{VICTIM}/{AGENT}/secret");
    let mut places = vec![up.clone(), format!("/workspace/{up}"), format!("./{up}"), format!("x/../{up}")];
    if let Some(host) = scene.host() {
        places.push(host.secret().display().to_string());
        places.push(format!("../../../../../{}", host.secret().strip_prefix("/").unwrap().display()));
    }
    let mut replies = Vec::new();
    for place in &places {
        for (command, args) in [
            ("cat", vec![place.clone()]),
            ("grep", vec!["-r".into(), "canary".into(), place.clone()]),
            ("grep", vec![format!("--file={place}"), "own".into()]),
            ("sed", vec!["".into(), place.clone()]),
            ("sed", vec!["-n".into(), format!("1r {place}"), "own".into()]),
            ("awk", vec![format!("{{ while ((getline x < \"{place}\") > 0) print x }}"), "own".into()]),
            ("cp", vec![place.clone(), "copied".into()]),
            ("mv", vec![place.clone(), "moved".into()]),
            ("curl", vec!["-s".into(), format!("file://{place}")]),
            ("curl", vec!["-s".into(), format!("-d@{place}"), "http://127.0.0.1:1".into()]),
            ("find", vec![place.clone(), "-exec".into(), "cat".into(), "{}".into(), "+".into()]),
            ("bash", vec!["-c".into(), format!("cat < {place}; read x < {place}; echo $x")]),
            (
                "bash",
                vec![
                    "-c".into(),
                    format!("p='{place}'; cat $p; cat ${{p%t}}t; cd $(dirname $p) && cat secret"),
                ],
            ),
            ("bash", vec![place.clone()]),
            ("python3", vec![place.clone()]),
            ("python3", vec!["-c".into(), format!("print(open('{place}').read())")]),
            ("ls", vec!["-a".into(), place.clone()]),
        ] {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            replies.push(scene.client().try_execute(&tree, command, &args));
        }
    }
    for taken in ["copied", "moved"] {
        replies.push(scene.client().get(format!("{tree}/raw/{taken}")));
    }
    // Messages of programs name the path, which holds no canary.
    loot(scene, replies)
}

fn writing_paths(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return Finding::Skipped("needs a look at the host".into()) };
    let tree = scene.workspace();
    scene.write("own", "own");
    let above = host.root.parent().unwrap().parent().unwrap();
    let name = format!("made-by-{}", scene.name);
    for up in UP {
        for count in 1..7 {
            let path = format!("{}{name}", up.repeat(count));
            scene.client().put(format!("{tree}/raw/{path}?parents=true"), "made");
            scene.client().put(format!("{tree}/edit?path={path}"), "made");
            scene.client().post_json(format!("{tree}/mkdir"), &json!({ "path": path, "parents": true }));
            // An odd spelling of "up" is a name like others, and takes it away.
            scene.write("own", "own");
            scene.client().post_json(format!("{tree}/move"), &json!({ "from": "own", "to": path }));
        }
    }
    let path = format!("{}/{name}", above.display());
    scene.client().put(format!("{tree}/raw/{path}?parents=true"), "made");
    scene.client().put(format!("{tree}/edit?path={}", encoded(&path)), "made");
    // Odd spellings of "up" are names like others, in the tree and nowhere else.
    let strayed = host::paths(above)
        .into_iter()
        .find(|path| path.to_string_lossy().contains(&name) && !scene.may_have(host, path));
    strayed.map_or(Finding::Stopped, |path| Finding::Through(path.display().to_string()))
}

fn other_token(scene: &Scene<'_>) -> Finding {
    let Some(token) = scene.stage.user_token(&scene.user) else {
        return Finding::Skipped("needs a token for one user in the service's configuration".into());
    };
    let own = scene.client().with_token(&token);
    own.put(format!("{}/raw/own", scene.workspace()), "own").ok();
    assert_eq!(own.text(&scene.workspace(), "own"), "own", "the control");
    let victims = [format!("/v1/sandbox/{VICTIM}/{AGENT}"), format!("/v1/skills/{VICTIM}/{AGENT}/{SKILL}")];
    let mut replies = Vec::new();
    for tree in &victims {
        for route in ["content?path=secret", "raw/secret", "files", "stat?path=secret", "dir", "download"] {
            replies.push(own.get(format!("{tree}/{route}")));
        }
        replies.push(own.post_json(format!("{tree}/exec"), &json!({ "shell": "cat secret" })));
        replies.push(own.try_execute(tree, "cat", &["secret"]));
        let changed = [
            own.put(format!("{tree}/raw/secret"), "changed"),
            own.delete(format!("{tree}/file?path=secret")),
            own.post_json(format!("{tree}/move"), &json!({ "from": "secret", "to": "gone" })),
        ];
        if let Some(reply) = changed.iter().find(|reply| reply.status < 400) {
            return Finding::Through(format!("changed: {}", reply.status));
        }
    }
    replies.push(own.get(format!("/v1/skills/{VICTIM}/{AGENT}/list")));
    if let Some(reply) = replies.iter().find(|reply| reply.status < 400) {
        return Finding::Through(format!(
            "answered: {} {}",
            reply.status,
            String::from_utf8_lossy(&reply.body)
        ));
    }
    loot(scene, replies)
}
