//! Attacks on the API by what a command, or an archive, left in a tree for it to find.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;

use crate::attack::Attack;
use crate::client::Reply;
use crate::client::pace::paced;
use crate::expectation::{Expectations, Expected, Finding};
use crate::host;
use crate::payload::{self, Mode};
use crate::scene::{AGENT, Scene};
use crate::zip::{Entry, zip};

/// The longest that the API may take to answer about something that is no file.
const PROMPT: Duration = Duration::from_secs(3);

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("reading_through_a_planted_link", reading_links).everywhere(),
    Attack::driven("writing_through_a_planted_link", writing_links).everywhere(),
    Attack::driven("downloading_a_skill_with_planted_links", downloading_links).everywhere(),
    Attack::driven("reading_and_writing_through_a_planted_hard_link", hard_links).expecting(
        Expectations::EVERYWHERE
            .process(Expected::NotRun("the command itself reads every file that it could link")),
    ),
    Attack::driven("uploading_links_and_climbing_names", uploading_links).everywhere(),
    Attack::driven("uploading_tars_with_links_and_climbing_names", uploading_tars).everywhere(),
    Attack::driven("planting_a_pipe_that_nobody_writes", |scene| {
        odd_entry(scene, rustix::fs::FileType::Fifo)
    })
    .everywhere(),
    Attack::driven("planting_a_socket", |scene| odd_entry(scene, rustix::fs::FileType::Socket)).everywhere(),
    Attack::driven("planting_a_device", |scene| odd_entry(scene, rustix::fs::FileType::CharacterDevice))
        .everywhere(),
    Attack::driven("holding_a_lease_on_a_file_that_is_read", holding_a_lease).everywhere(),
];

/// Runs a function of the payload in a tree.
fn plant(scene: &Scene<'_>, tree: &str, function: &str, targets: &[String]) -> String {
    payload::plant(scene, tree, "planting.py");
    let evil = scene.exec(tree, &payload::request(scene, "planting.py", function, Mode::Evil, targets));
    assert!(evil.stdout().ends_with("end\n"), "the attack did not come to its end: {}", evil.result);
    evil.stdout().to_owned()
}

/// The targets of links: a file and a directory outside, where there is a host, and a neighbour's things.
fn targets(scene: &Scene<'_>) -> (Vec<String>, Option<PathBuf>) {
    let outside =
        scene.host().map(|host| host.own_outside(&format!("outside-{}", scene.name), scene.canary()));
    let mut targets = Vec::new();
    if let Some(outside) = &outside {
        targets.push(outside.join("secret").display().to_string());
        targets.push(outside.display().to_string());
    }
    targets.push(format!("../../victim/{AGENT}/secret"));
    targets.push("/".into());
    targets.push("/proc/self/environ".into());
    targets.push("/proc/self/root".into());
    targets.push("/proc/self/fd".into());
    targets.push("..".into());
    (targets, outside)
}

/// The first answer that holds a canary or something of the service's process.
pub(crate) fn loot(scene: &Scene<'_>, replies: impl IntoIterator<Item = Reply>) -> Option<String> {
    replies.into_iter().find_map(|reply| {
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        scene.loot_in(&text).or_else(|| text.contains("FILESECBOX_TOKEN").then_some(text))
    })
}

fn finding(loot: Option<String>) -> Finding {
    loot.map_or(Finding::Stopped, Finding::Through)
}

/// Asks for a path by every route that reads.
pub(crate) fn read_everyhow(scene: &Scene<'_>, tree: &str, path: &str) -> Vec<Reply> {
    let client = scene.client();
    let mut replies: Vec<Reply> = ["content", "stat", "dir", "files"]
        .iter()
        .map(|route| client.get(format!("{tree}/{route}?path={path}")))
        .collect();
    replies.push(client.get(format!("{tree}/content?path={path}&start=1&end=5")));
    replies.push(client.get(format!("{tree}/files?path={path}&detail=true&depth=2")));
    replies.push(client.get(format!("{tree}/raw/{path}")));
    replies.push(client.request("GET", format!("{tree}/raw/{path}")).header("range", "bytes=0-9999").send());
    replies
}

fn reading_links(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    scene.write("own", "own text\n");
    let (targets, _) = targets(scene);
    plant(scene, &tree, "make_links", &[vec!["own".to_owned()], targets.clone()].concat());
    // A link that stays in the tree is followed: the control.
    assert_eq!(scene.client().text(&tree, "link0"), "own text\n", "the control");
    let paths = (1..=targets.len()).flat_map(|number| {
        [
            format!("link{number}"),
            format!("link{number}/secret"),
            format!("link{number}/environ"),
            format!("link{number}/0"),
        ]
    });
    let found = loot(scene, paths.flat_map(|path| read_everyhow(scene, &tree, &path)));
    // Through a working directory that is a link.
    let by_directory = (1..=targets.len()).map(|number| {
        let run = json!({ "shell": "cat secret; ls -a", "dir": format!("link{number}") });
        scene.client().post_json(format!("{tree}/exec"), &run)
    });
    // At tier `process` the command itself could follow; what the API resolves counts.
    let by_directory = loot(scene, by_directory);
    finding(found.or(by_directory))
}

fn writing_links(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    scene.write("own", "own text\n");
    let (targets, outside) = targets(scene);
    let Some(outside) = outside else { return Finding::Skipped("needs a look at the host".into()) };
    plant(scene, &tree, "make_links", &[vec!["own".to_owned()], targets].concat());
    scene.client().write(&tree, "link0", "changed through a link that stays\n");
    let before = host::inventory(&outside);
    let client = scene.client();
    for path in ["link1", "link2/secret", "link2/made", "link2/deep/made"] {
        client.put(format!("{tree}/raw/{path}?parents=true"), "changed");
        client.put(format!("{tree}/edit?path={path}"), "changed");
        client.put(format!("{tree}/edit?path={path}&start=1&end=1"), "changed\n");
        let edit = json!({ "old_string": "canary", "new_string": "changed" });
        client.post_json(format!("{tree}/replace"), &json!({ "path": path, "edits": [edit] }));
        client.post_json(format!("{tree}/mkdir"), &json!({ "path": path, "parents": true }));
        for (from, to) in [(path, "taken"), ("own", path)] {
            client.post_json(format!("{tree}/move"), &json!({ "from": from, "to": to, "overwrite": true }));
        }
        client.delete(format!("{tree}/file?path={path}&recursive=true"));
        client.delete(format!("{tree}/raw/{path}"));
        if host::inventory(&outside) != before {
            return Finding::Through(format!("changed through {path}: {:?}", host::inventory(&outside)));
        }
    }
    client.delete(format!("{tree}/file?path=link2&recursive=true"));
    let same = host::inventory(&outside) == before;
    let taken = loot(scene, read_everyhow(scene, &tree, "taken"));
    if same { finding(taken) } else { Finding::Through("a link was followed when it was removed".into()) }
}

fn downloading_links(scene: &Scene<'_>) -> Finding {
    let tree = scene.skill();
    let (targets, _) = targets(scene);
    plant(scene, &tree, "make_links", &targets);
    scene.put(&tree, "mine", "content of one's own");
    let archive = scene.client().get(format!("{tree}/download"));
    let unpacked = unpacked(archive.bytes(200));
    assert!(unpacked.contains("content of one's own"), "the control");
    let names =
        (0..targets.len()).flat_map(|number| [format!("link{number}"), format!("link{number}/secret")]);
    let mut replies: Vec<Reply> = names.flat_map(|path| read_everyhow(scene, &tree, &path)).collect();
    replies.push(scene.client().get(format!("/v1/skills/{}/{AGENT}/list", scene.user)));
    finding(scene.loot_in(&unpacked).or_else(|| loot(scene, replies)))
}

/// The names and contents of all entries of a ZIP.
fn unpacked(bytes: &[u8]) -> String {
    let mut archive = ::zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    let mut text = String::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        text += &format!("{} {}\n", entry.name().unwrap(), String::from_utf8_lossy(&content));
    }
    text
}

/// A hard link is a file of the tree in every respect, so that it must not come into being.
fn hard_links(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    scene.write("own", "own text\n");
    let (targets, outside) = targets(scene);
    let Some(outside) = outside else { return Finding::Skipped("needs a look at the host".into()) };
    let made = plant(scene, &tree, "make_links", &[vec!["own".to_owned()], targets].concat());
    assert!(made.contains("hard0 made") || made.contains("link0 made"), "the control: {made}");
    let before = host::inventory(&outside);
    let found = loot(scene, read_everyhow(scene, &tree, "hard1"));
    scene.client().put(format!("{tree}/raw/hard1"), "changed");
    scene.client().put(format!("{tree}/edit?path=hard1&start=1&end=1"), "changed\n");
    if scene.stage.is_root {
        // Planted by a process with more rights: the service must not read a foreign file through it.
        let host = scene.host().unwrap();
        fs::hard_link(outside.join("secret"), host.workspace(&scene.user).join("given")).unwrap();
        if let Some(loot) = loot(scene, read_everyhow(scene, &tree, "given")) {
            return Finding::Through(loot);
        }
    }
    let same = host::inventory(&outside) == before;
    if same { finding(found) } else { Finding::Through("changed through a hard link".into()) }
}

fn uploading_links(scene: &Scene<'_>) -> Finding {
    let skills = format!("/v1/skills/{}/{AGENT}", scene.user);
    let (targets, outside) = targets(scene);
    let before = outside.as_ref().map(|outside| host::inventory(outside));
    let good = zip(&[Entry::file("good/SKILL.md", "# good\n"), Entry::file("good/data", "own")]);
    scene.client().upload(&skills, "overlay", &good);
    let mut replies = Vec::new();
    for (number, target) in targets.iter().enumerate() {
        let id = format!("s{number}");
        let archive = zip(&[
            Entry::file(&format!("{id}/SKILL.md"), "# s\n"),
            Entry::link(&format!("{id}/link"), target),
            Entry::file(&format!("{id}/link/made"), "planted"),
        ]);
        let alone = zip(&[
            Entry::file(&format!("{id}/SKILL.md"), "# s\n"),
            Entry::link(&format!("{id}/link"), target),
        ]);
        for archive in [archive, alone] {
            replies.push(scene.client().try_upload(&skills, "overlay", &archive));
            replies.extend(read_everyhow(scene, &format!("{skills}/{id}"), "link"));
        }
    }
    for climb in ["../", "../../../../../../", "..\\..\\", "/", "x/../../", "./../", "\u{ff0e}\u{ff0e}/"] {
        for depth in ["", "outside-uploading_links_and_climbing_names/", "victim/demo/shared/"] {
            let archive = zip(&[
                Entry::file("c/SKILL.md", "# c\n"),
                Entry::file(&format!("c/{climb}{depth}made-by-archive"), "planted"),
            ]);
            scene.client().try_upload(&skills, "overlay", &archive);
        }
    }
    if outside.as_ref().map(|outside| host::inventory(outside)) != before {
        return Finding::Through("an archive wrote outside".into());
    }
    finding(strayed(scene, "made-by-archive").or_else(|| loot(scene, replies)))
}

/// A file `name` of the host that the user may not have made.
fn strayed(scene: &Scene<'_>, name: &str) -> Option<String> {
    let host = scene.host()?;
    let above = host.root.parent().unwrap().parent().unwrap();
    let is_stray = |path: &PathBuf| path.ends_with(name) && !scene.may_have(host, path);
    host::paths(above).into_iter().find(is_stray).map(|path| path.display().to_string())
}

/// The same as a tar, whose links are symbolic or hard, and may come after what is written through them.
fn uploading_tars(scene: &Scene<'_>) -> Finding {
    use tar::EntryType::{Link, Regular, Symlink};
    let skills = format!("/v1/skills/{}/{AGENT}", scene.user);
    let (targets, outside) = targets(scene);
    let before = outside.as_ref().map(|outside| host::inventory(outside));
    let tar = |entries: &[(tar::EntryType, &str, &str)]| {
        let mut builder = tar::Builder::new(Vec::new());
        for (kind, name, target) in entries {
            let content: &[u8] = if *kind == Regular { b"planted" } else { b"" };
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            let fields = header.as_gnu_mut().unwrap();
            fields.name[..name.len()].copy_from_slice(name.as_bytes());
            let target = target.as_bytes().get(..100).unwrap_or(target.as_bytes());
            fields.linkname[..target.len()].copy_from_slice(target);
            header.set_cksum();
            builder.append(&header, content).unwrap();
        }
        builder.into_inner().unwrap()
    };
    let good =
        tar(&[(Regular, "good/SKILL.md", ""), (Symlink, "good/link", "SKILL.md"), (Regular, "good/own", "")]);
    scene.client().upload(&skills, "overlay", &good);
    let mut replies = read_everyhow(scene, &format!("{skills}/good"), "link");
    assert!(replies.iter().any(|reply| reply.body.windows(7).any(|text| text == b"planted")), "the control");
    for (number, target) in targets.iter().enumerate() {
        let [marker, link, below] = ["SKILL.md", "link", "link/made"].map(|name| format!("t{number}/{name}"));
        for kind in [Symlink, Link] {
            for entries in [
                vec![(Regular, marker.as_str(), ""), (kind, link.as_str(), target.as_str())],
                vec![(Regular, marker.as_str(), ""), (kind, &link, target), (Regular, &below, "")],
                vec![(Regular, below.as_str(), ""), (kind, &link, target), (Regular, &marker, "")],
                vec![(kind, marker.as_str(), target.as_str()), (Regular, below.as_str(), "")],
            ] {
                replies.push(scene.client().try_upload(&skills, "overlay", &tar(&entries)));
                for name in ["link", "SKILL.md"] {
                    replies.extend(read_everyhow(scene, &format!("{skills}/t{number}"), name));
                }
            }
        }
    }
    for climb in [
        "../../../../made-by-tar",
        "/made-by-tar",
        "..\\..\\made-by-tar",
        "x/../../made-by-tar",
        "../../../made-by-tar",
        "../../made-by-tar",
        "../made-by-tar",
    ] {
        let name = format!("c/{climb}");
        for name in [name.as_str(), climb] {
            let entries = [(Regular, "c/SKILL.md", ""), (Regular, name, "")];
            scene.client().try_upload(&skills, "overlay", &tar(&entries));
        }
    }
    if outside.as_ref().map(|outside| host::inventory(outside)) != before {
        return Finding::Through("an archive wrote outside".into());
    }
    finding(strayed(scene, "made-by-tar").or_else(|| loot(scene, replies)))
}

/// The payload tries to make it; the host makes it too, so that the API is tried even where the walls stop the payload.
fn odd_entry(scene: &Scene<'_>, kind: rustix::fs::FileType) -> Finding {
    let tree = scene.workspace();
    scene.write("own", "own");
    let made = plant(scene, &tree, "make_pipe", &[]);
    let mut names = vec!["pipe".to_owned(), "socket".to_owned()];
    if let Some(host) = scene.host() {
        let path = host.workspace(&scene.user).join("planted");
        // Character device 1:5 gives zeros without end; it can be made as root only.
        let device =
            if kind == rustix::fs::FileType::CharacterDevice { rustix::fs::makedev(1, 5) } else { 0 };
        let result = rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o666.into(), device);
        match result {
            Ok(()) => names.push("planted".into()),
            Err(error) => assert!(!rustix::process::geteuid().is_root(), "{error}"),
        }
    } else if made.lines().count() == 2 {
        return Finding::Skipped(
            "the walls let nothing be planted, and the host cannot be reached to do it".into(),
        );
    }
    for name in names {
        let (sender, receiver) = mpsc::channel();
        let client = scene.client().clone();
        let tree = tree.clone();
        let asked = name.clone();
        let is_there = name == "planted";
        std::thread::spawn(move || {
            // Nothing of it is read, and no line of it is changed.
            let refused = [400, 403, 404, 409];
            let told = |route: &'static str, reply: Reply, allowed: &[u16]| {
                let is_fine = allowed.is_empty() || allowed.contains(&reply.status);
                let _ = sender.send((route, is_fine, reply.status));
            };
            for (route, allowed) in [("content", &refused[..]), ("stat", &[]), ("dir", &[]), ("files", &[])] {
                told(route, client.get(format!("{tree}/{route}?path={asked}")), allowed);
            }
            told("raw", client.get(format!("{tree}/raw/{asked}")), &refused);
            let edited = client.put(format!("{tree}/edit?path={asked}&start=1&end=1"), "x");
            // What is not there is made.
            told("edit", edited, if is_there { &refused } else { &[] });
            told("files", client.get(format!("{tree}/files")), &[200]);
            told("put", client.put(format!("{tree}/raw/{asked}"), "x"), &[]);
            told("delete", client.delete(format!("{tree}/file?path={asked}&recursive=true")), &[]);
        });
        for step in 0..9 {
            match receiver.recv_timeout(PROMPT) {
                Ok((_, true, _)) => {}
                Ok((route, false, status)) => {
                    return Finding::Through(format!("`{route}` of `{name}` answers {status}"));
                }
                Err(_) => return Finding::Through(format!("the API hangs at `{name}`, step {step}")),
            }
        }
    }
    assert_eq!(scene.client().text(&tree, "own"), "own", "the control");
    Finding::Stopped
}

/// A lease makes every process that opens the file wait until its holder lets go (fcntl(2)).
fn holding_a_lease(scene: &Scene<'_>) -> Finding {
    let tree = scene.workspace();
    payload::plant(scene, &tree, "planting.py");
    let request = payload::request(scene, "planting.py", "hold_lease", Mode::Evil, &["leased".into()]);
    std::thread::scope(|threads| {
        let run = threads.spawn(|| scene.exec(&tree, &request));
        wait_until_ready(scene, &tree, || run.is_finished());
        let begun = std::time::Instant::now();
        for route in ["content?path=leased", "raw/leased", "stat?path=leased"] {
            scene.client().get(format!("{tree}/{route}"));
        }
        let replaced = scene.client().put(format!("{tree}/raw/leased"), "new").status;
        let took = begun.elapsed();
        scene.write("enough", "");
        let ran = run.join().unwrap();
        assert!(ran.stdout().ends_with("end\n"), "the lease was not had: {}", ran.result);
        if took > PROMPT {
            Finding::Through(format!("the API waited for {took:?}"))
        } else if replaced != 200 {
            Finding::Through(format!("a leased file cannot be replaced: {replaced}"))
        } else {
            Finding::Stopped
        }
    })
}

/// Waits until a payload has made `ready`.
pub(crate) fn wait_until_ready(scene: &Scene<'_>, tree: &str, is_over: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while scene.client().get(format!("{tree}/stat?path=ready")).status != 200 {
        assert!(!is_over() && begun.elapsed() < paced(Duration::from_secs(20)), "the payload never began");
        std::thread::sleep(Duration::from_millis(10));
    }
}
