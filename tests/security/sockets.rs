//! Attacks by way of UNIX sockets: names in memory, and open files that are handed from one run to another.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::attack::Attack;
use crate::client::encoded;
use crate::client::pace::paced;
use crate::expectation::{Expectations, Expected, Finding};
use crate::records::{ATTACKER, Mortal, nothing_to_start};
use crate::scene::{AGENT, SKILL, Scene, VICTIM, skill_of, workspace_of};
use crate::zip::skill_zip;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("carrying_a_secret_over_an_abstract_name", abstract_names).expecting(WITH_NAMES),
    Attack::driven("taking_a_name_of_the_hosts", taking_names).expecting(WITH_NAMES),
    Attack::driven("reaching_a_server_of_another_user", other_users),
    Attack::driven("keeping_a_skill_open_in_another_run", keeping_open).waiting(),
    Attack::driven("carrying_a_secret_over_shared_memory", shared_memory),
];

const WITH_NAMES: Expectations =
    Expectations::WALLED.landlock(Expected::NotRun("commands take no abstract names there"));

const PATIENCE: Duration = Duration::from_secs(20);

/// Listens at an abstract name until it is told to stop, and says who came.
const LISTEN: &str = "import os, socket, sys, time\n\
    end = socket.socket(socket.AF_UNIX); end.bind('\\0' + sys.argv[1]); end.listen(); end.settimeout(0.05)\n\
    pair = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); pair.bind('\\0' + sys.argv[1] + 'd'); pair.setblocking(False)\n\
    open('listens', 'w').close()\n\
    for _ in range(400):\n\
    \x20   if os.path.exists('enough'): break\n\
    \x20   try: end.accept(); print('GOT a connection', flush=True)\n\
    \x20   except OSError: pass\n\
    \x20   try: print('GOT', pair.recv(99), flush=True)\n\
    \x20   except OSError: pass\n\
    print('end')";
/// Connects and sends there.
const SEND: &str = "import socket, sys\n\
    try: socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[1])\n\
    except OSError as e: print(e)\n\
    try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'the secret', '\\0' + sys.argv[1] + 'd')\n\
    except OSError as e: print(e)\n\
    print('sent')";

/// Has one run listen in `tree` while others send; what it says.
fn listening(scene: &Scene<'_>, tree: &str, name: &str, senders: &[String]) -> String {
    let client = scene.client();
    for path in ["listens", "enough"] {
        client.delete(format!("{tree}/file?path={path}"));
    }
    scene.put(tree, "listen.py", LISTEN);
    let run = json!({"command": "python3", "args": ["listen.py", name], "exec_id": "listen"});
    assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &run).status, 201);
    let begun = Instant::now();
    while client.get(format!("{tree}/stat?path=listens")).status != 200 {
        assert!(begun.elapsed() < paced(PATIENCE), "it never listened");
        std::thread::sleep(Duration::from_millis(10));
    }
    for sender in senders {
        scene.put(sender, "send.py", SEND);
        let sent = scene.exec(sender, &json!({"command": "python3", "args": ["send.py", name]}));
        assert!(sent.stdout().ends_with("sent\n"), "{:?}", sent.result);
    }
    scene.put(tree, "enough", "");
    let ended = client.get(format!("{tree}/exec/listen?follow")).ok();
    let told = ended["result"]["stdout"].as_str().unwrap().to_owned();
    assert!(told.ends_with("end\n"), "{ended}");
    told
}

fn abstract_names(scene: &Scene<'_>) -> Finding {
    let control = scene.control();
    // The control listens and sends in one run, in which an abstract name is reached.
    scene.put(&control.workspace(), "both.py", format!(
        "import subprocess, sys\nlisten, send = {LISTEN:?}, {SEND:?}\n\
         one = subprocess.Popen([sys.executable, '-c', listen, 'both'], stdout=subprocess.PIPE, text=True)\n\
         import os, time\nwhile not os.path.exists('listens'): time.sleep(0.01)\n\
         subprocess.run([sys.executable, '-c', send, 'both'])\ntime.sleep(0.2)\nopen('enough', 'w').close()\nprint(one.communicate()[0])"
    ));
    let both = control.exec(&control.workspace(), &json!({"command": "python3", "args": ["both.py"]}));
    assert!(
        both.stdout().contains("GOT a connection") && both.stdout().contains("the secret"),
        "{:?}",
        both.result
    );
    let others = [control.workspace(), format!("/v1/sandbox/{}/other-agent", encoded(&scene.user))];
    let told = listening(scene, &scene.workspace(), "secret-name", &others);
    if told.contains("GOT") { Finding::Through(told) } else { Finding::Stopped }
}

/// A run of the control keeps a word in shared memory and a semaphore of a name; runs of others look for both.
fn shared_memory(scene: &Scene<'_>) -> Finding {
    let (control, client) = (scene.control(), scene.client());
    let tree = control.workspace();
    let name = format!("secret-{}", encoded(&scene.user));
    // Not by the class of the standard library, whose helper process removes what was only looked at.
    let look = "import os, sys\n\
        from _posixshmem import shm_open\n\
        from _multiprocessing import SemLock\n\
        try: print('GOT', os.read(shm_open('/' + sys.argv[1], os.O_RDWR, mode=0o600), 6), flush=True)\n\
        except OSError as e: print(e)\n\
        try: print('GOT', SemLock._rebuild(0, 1, 1, '/' + sys.argv[1]), flush=True)\n\
        except OSError as e: print(e)";
    let keep = format!(
        "import os, subprocess, sys, time\n\
         from _posixshmem import shm_open\n\
         from _multiprocessing import SemLock\n\
         os.write(shm_open('/' + sys.argv[1], os.O_RDWR | os.O_CREAT, mode=0o600), b'secret')\n\
         two = SemLock(1, 1, 1, '/' + sys.argv[1], False)\n\
         subprocess.run([sys.executable, '-c', {look:?}, sys.argv[1]])\n\
         open('keeps', 'w').close()\n\
         while not os.path.exists('enough'): time.sleep(0.01)\n\
         print('end')"
    );
    for path in ["keeps", "enough"] {
        client.delete(format!("{tree}/file?path={path}"));
    }
    scene.put(&tree, "keep.py", &keep);
    let run = json!({"command": "python3", "args": ["keep.py", name], "exec_id": "keeps"});
    assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &run).status, 201);
    let begun = Instant::now();
    while client.get(format!("{tree}/stat?path=keeps")).status != 200 {
        assert!(
            begun.elapsed() < paced(PATIENCE),
            "it kept nothing: {}",
            client.get(format!("{tree}/exec/keeps")).ok()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let others = [scene.workspace(), format!("/v1/sandbox/{}/other-agent", encoded(&control.user))];
    let mut told = String::new();
    for other in &others {
        scene.put(other, "look.py", look);
        let ran = scene.exec(other, &json!({"command": "python3", "args": ["look.py", name]}));
        assert_eq!(ran.result["exit_code"], 0, "{:?}", ran.result);
        told += ran.stdout();
    }
    scene.put(&tree, "enough", "");
    let ended = client.get(format!("{tree}/exec/keeps?follow")).ok();
    let kept = ended["result"]["stdout"].as_str().unwrap();
    assert!(kept.matches("GOT").count() == 2 && kept.ends_with("end\n"), "{ended}");
    if told.contains("GOT") { Finding::Through(told) } else { Finding::Stopped }
}

/// A run of the control serves at a path of its workspace; runs of the attacker look for it at every path at which it could be,
/// with the place of the attacker's own workspace as the guide.
fn other_users(scene: &Scene<'_>) -> Finding {
    let (control, client) = (scene.control(), scene.client());
    let tree = control.workspace();
    let serve = "import os, socket\n\
        end = socket.socket(socket.AF_UNIX); end.bind(os.getcwd() + '/served'); end.listen(); os.chmod('served', 0o777)\n\
        open('listens', 'w').close()\n\
        for _ in range(9):\n\
        \x20   one = end.accept()[0]; word = one.recv(9).decode(); print('GOT', word, flush=True); one.close()\n\
        \x20   if word == 'enough': break";
    let run = json!({"command": "python3", "args": ["-c", serve], "exec_id": "serves"});
    assert_eq!(client.post_json(format!("{tree}/exec?background=true"), &run).status, 201);
    let begun = Instant::now();
    while client.get(format!("{tree}/stat?path=listens")).status != 200 {
        assert!(begun.elapsed() < paced(PATIENCE), "it never listened");
        std::thread::sleep(Duration::from_millis(10));
    }
    let reach = "import os, socket, sys\n\
        here, mine, theirs = os.getcwd(), *sys.argv[1:3]\n\
        for at in ('served', here + '/served', here.replace(mine, theirs) + '/served', '../../' + theirs + '/' + os.path.basename(here) + '/served'):\n\
        \x20   try: end = socket.socket(socket.AF_UNIX); end.connect(at); end.send(sys.argv[3].encode()); end.recv(1)\n\
        \x20   except OSError: pass";
    let tried = |tree: &str, word: &str| {
        scene.put(tree, "reach.py", reach);
        let args = ["reach.py", scene.user.as_str(), control.user.as_str(), word];
        let ran = scene.exec(tree, &json!({"command": "python3", "args": args}));
        assert_eq!(ran.result["exit_code"], 0, "{:?}", ran.result);
    };
    tried(&scene.workspace(), "attacker");
    // The control reaches its own server so.
    tried(&tree, "enough");
    let ended = client.get(format!("{tree}/exec/serves?follow")).ok();
    let told = ended["result"]["stdout"].as_str().unwrap().to_owned();
    assert!(told.contains("GOT enough"), "{ended}");
    if told.contains("attacker") { Finding::Through(told) } else { Finding::Stopped }
}

/// A run takes an abstract name, and a program of the host asks for it.
fn taking_names(scene: &Scene<'_>) -> Finding {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    if scene.host().is_none() {
        return Finding::Skipped("needs a program on the host of the service".into());
    }
    let name = format!("{}-taken", scene.canary());
    // The network of the host is had where an operator gives it.
    let Some(mortal) = Mortal::of(scene, "[commands]\nnetwork = \"host\"\n") else {
        return nothing_to_start();
    };
    let (mut reached, mut tried) = (Vec::new(), 0);
    for network in ["none", "proxy", "host"] {
        let (tree, client) = match network {
            "host" => (workspace_of(ATTACKER), &mortal.client),
            _ => (scene.workspace(), scene.client()),
        };
        client.put(format!("{tree}/raw/listen.py?parents=true"), LISTEN).ok();
        for path in ["listens", "enough"] {
            client.delete(format!("{tree}/file?path={path}"));
        }
        let id = format!("taken-{network}");
        let run =
            json!({"command": "python3", "args": ["listen.py", name], "exec_id": id, "network": network});
        let begun = client.post_json(format!("{tree}/exec?background=true"), &run);
        if begun.status == 501 {
            continue;
        }
        assert_eq!(begun.status, 201, "{}", begun.json());
        tried += 1;
        let since = Instant::now();
        let listens = loop {
            if client.get(format!("{tree}/stat?path=listens")).status == 200 {
                break true;
            }
            if client.get(format!("{tree}/exec/{id}")).ok()["data"]["state"] == "ended"
                || since.elapsed() > paced(PATIENCE)
            {
                break false;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(listens || network == "host", "the control: it never listened with `{network}`");
        if UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).is_ok() {
            reached.push(network);
        }
        client.put(format!("{tree}/raw/enough"), "").ok();
        client.get(format!("{tree}/exec/{id}?follow")).ok();
    }
    assert!(tried > 1, "the control: commands have no network");
    if reached.is_empty() { Finding::Stopped } else { Finding::Through(format!("with network {reached:?}")) }
}

/// A command in a skill hands an open file and an open directory of it to another run, which holds on to them and goes on
/// writing while the skill is left, mounted anew, changed, replaced and published.
fn keeping_open(scene: &Scene<'_>) -> Finding {
    let Some(mortal) = Mortal::of(scene, "[limits]\nviews = 1\n") else { return nothing_to_start() };
    let (client, workspace, skill) = (&mortal.client, workspace_of(ATTACKER), skill_of(ATTACKER));
    let exec = |tree: &str, more: &str, script: &str| {
        let run = json!({"command": "python3", "args": ["-c", script], "exec_id": more});
        client.post_json(format!("{tree}/exec{}", if more == "hold" { "?background=true" } else { "" }), &run)
    };
    let hold = "import os, socket, time\n\
        end = socket.socket(socket.AF_UNIX); at = os.environ['HOME'] + '/s'\n\
        try: os.unlink(at)\n\
        except OSError: pass\n\
        end.bind(at); end.listen()\n\
        other = end.accept()[0]\n\
        _, files, _, _ = socket.recv_fds(other, 9, 4)\n\
        open('taken', 'w').close()\n\
        for number in range(4000):\n\
        \x20   for file in files:\n\
        \x20       try: os.write(file, b'held\\n')\n\
        \x20       except OSError: pass\n\
        \x20       for name in ('made', '../made', '../../made', 'data.txt'):\n\
        \x20           try: os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, dir_fd=file)); open('made-it', 'w').close()\n\
        \x20           except OSError: pass\n\
        \x20           try: os.rename(name, 'renamed', src_dir_fd=file, dst_dir_fd=file); open('made-it', 'w').close()\n\
        \x20           except OSError: pass\n\
        \x20   time.sleep(0.005)";
    assert_eq!(exec(&workspace, "hold", hold).status, 201);
    let give = "import os, socket, time\n\
        end = socket.socket(socket.AF_UNIX)\n\
        for _ in range(400):\n\
        \x20   try: end.connect(os.environ['HOME'] + '/s'); break\n\
        \x20   except OSError: time.sleep(0.02)\n\
        files = [os.open('own.txt', os.O_CREAT | os.O_RDWR | os.O_APPEND), os.open('.', os.O_RDONLY), os.open('data.txt', os.O_RDONLY)]\n\
        socket.send_fds(end, [b'x'], files); print('given')";
    let given = exec(&skill, "give", give).ok();
    assert_eq!(given["data"]["stdout"], "given\n", "{given}");
    let since = Instant::now();
    while client.get(format!("{workspace}/stat?path=taken")).status != 200 {
        assert!(since.elapsed() < paced(PATIENCE), "the control: nothing was taken");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The run that gave has ended; its view gives way to another skill's, and comes again.
    let skills = format!("/v1/skills/{ATTACKER}/{AGENT}");
    client.upload(&skills, "overlay", &skill_zip("other", &[("x", "1")]));
    let line = |tree: &str, line: &str| {
        let ran = client.post_json(format!("{tree}/exec"), &json!({ "shell": line })).ok();
        format!("{}{}", ran["data"]["stdout"].as_str().unwrap(), ran["data"]["stderr"].as_str().unwrap())
    };
    let mut told = Vec::new();
    for round in 0..4 {
        told.push((line(&format!("{skills}/other"), "cat x"), "1".to_owned()));
        client.put(format!("{skill}/raw/by-request"), format!("{round}")).ok();
        told.push((
            line(&skill, "cat by-request data.txt; echo by-run > by-run; cat by-run"),
            format!("{round}baseline\nby-run\n"),
        ));
        told.push((client.text(&skill, "by-run"), "by-run\n".to_owned()));
    }
    client.post(format!("{skill}/reset"), "").ok();
    told.push((line(&skill, "cat data.txt; ls -A | wc -l"), "baseline\n2\n".to_owned()));
    let published = skill_zip(SKILL, &[("data.txt", "second\n")]);
    let publishing =
        client.try_upload(&format!("/v1/skills/{VICTIM}/{AGENT}"), "baseline", &published).status;
    told.push((line(&skill_of(VICTIM), "cat data.txt"), "second\n".to_owned()));
    told.push((line(&skill, "cat data.txt"), "second\n".to_owned()));
    let still = client.get(format!("{workspace}/exec/hold")).ok()["data"]["state"].clone();
    assert_eq!(still, "running", "the control: it holds no more");
    let wrote = client.get(format!("{workspace}/stat?path=made-it")).status == 200;
    client.delete(format!("{workspace}/exec/hold")).ok();
    let wrong: Vec<_> = told.iter().filter(|(found, expected)| found != expected).collect();
    if publishing != 200 || !wrong.is_empty() {
        return Finding::Through(format!("publishing: {publishing}; {wrong:?}"));
    }
    if wrote {
        Finding::Through("names were made in the skill from the workspace".into())
    } else {
        Finding::Stopped
    }
}
