//! Attacks through sockets, and on descriptors that were left open.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::attack::{Attack, Prey};
use crate::client::pace::paced;
use crate::expectation::Finding;
use crate::payload::{self, Mode};
use crate::scene::Scene;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::driven("connecting_to_a_port_of_the_host", connecting_to_a_port),
    Attack::hunting("network.py", "connecting_to_the_service_itself", |scene| {
        Some(Prey { control: Vec::new(), evil: vec![scene.client().address.port().to_string()] })
    }),
    Attack::driven("sending_datagrams_to_the_host", sending_datagrams),
    Attack::driven("connecting_to_abstract_sockets", connecting_to_abstract_sockets),
    Attack::driven("connecting_to_sockets_with_a_path", connecting_to_a_path),
    Attack::driven("reaching_a_socket_with_a_path_by_detours", detours),
    Attack::driven("sending_from_a_pair_to_a_socket_with_a_path", sending_from_a_pair),
    Attack::payload("network.py", "reaching_the_metadata_address"),
    Attack::payload("network.py", "opening_unusual_sockets"),
    Attack::driven("listening_for_others", listening),
    Attack::driven("reaching_the_host_through_the_proxy", through_the_proxy),
    Attack::hunting("network.py", "using_the_proxy_without_a_token", |scene| {
        scene.stage.has_proxy.then(Prey::default)
    }),
    Attack::driven("leaving_by_other_ways_than_connecting", connecting_to_a_port),
    Attack::driven("turning_a_connection_to_oneself_elsewhere", from_an_own_address),
    Attack::payload("network.py", "learning_the_addresses_of_the_host"),
    Attack::payload("network.py", "using_descriptors_that_were_left_open"),
];

/// No connection may have come, even when the payload reports nothing.
fn judge<T>(finding: Finding, accepted: std::io::Result<T>) -> Finding {
    match accepted {
        Ok(_) => Finding::Through("the host was reached".into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => finding,
        Err(error) => panic!("{error}"),
    }
}

fn needs_host() -> Finding {
    Finding::Skipped("needs a listener on the host of the service".into())
}

fn evil(told: impl Into<String>) -> Prey {
    Prey { control: Vec::new(), evil: vec![told.into()] }
}

/// A listener of the host must hear nothing.
fn connecting_to_a_port(scene: &Scene<'_>) -> Finding {
    if scene.host().is_none() {
        return needs_host();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    judge(payload::hunt(scene, "network.py", &evil(port.to_string())), listener.accept())
}

/// Hosts listen on all addresses, and so at those that a command may have for itself.
fn from_an_own_address(scene: &Scene<'_>) -> Finding {
    if scene.host().is_none() {
        return needs_host();
    }
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    judge(payload::hunt(scene, "network.py", &evil(port.to_string())), listener.accept())
}

fn sending_datagrams(scene: &Scene<'_>) -> Finding {
    if scene.host().is_none() {
        return needs_host();
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let port = socket.local_addr().unwrap().port();
    let finding = payload::hunt(scene, "network.py", &evil(port.to_string()));
    judge(finding, socket.recv(&mut [0; 16]))
}

fn connecting_to_abstract_sockets(scene: &Scene<'_>) -> Finding {
    if scene.host().is_none() {
        return needs_host();
    }
    let name = format!("{}-abstract", scene.canary());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    judge(payload::hunt(scene, "network.py", &evil(name)), listener.accept())
}

fn connecting_to_a_path(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return needs_host() };
    use std::os::unix::fs::PermissionsExt;
    let outside = host.own_outside("outside-socket", scene.canary());
    let path = outside.join("listener");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    judge(payload::hunt(scene, "network.py", &evil(path.display().to_string())), listener.accept())
}

/// Nothing may be connected, and no name made beside the listener.
fn detours(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return needs_host() };
    use std::os::unix::fs::PermissionsExt;
    let outside = host.own_outside("outside-detours", scene.canary());
    std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = outside.join("listener");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let before = std::fs::read_dir(&outside).unwrap().count();
    let finding = payload::hunt(scene, "network.py", &evil(path.display().to_string()));
    if std::fs::read_dir(&outside).unwrap().count() != before {
        return Finding::Through("a name was made on the host".into());
    }
    judge(finding, listener.accept())
}

/// No payload can tell whether anything has arrived, so that the listener does.
fn sending_from_a_pair(scene: &Scene<'_>) -> Finding {
    let Some(host) = scene.host() else { return needs_host() };
    use std::os::unix::fs::PermissionsExt;
    let outside = host.own_outside("outside-datagrams", scene.canary());
    let path = outside.join("listener");
    let listener = UnixDatagram::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let control = UnixDatagram::unbound().unwrap();
    control.send_to(b"in", &path).unwrap();
    assert_eq!(listener.recv(&mut [0; 8]).unwrap(), 2, "the control");
    judge(payload::hunt(scene, "network.py", &evil(path.display().to_string())), listener.recv(&mut [0; 8]))
}

/// The proxy stands where a listener of the host and the service itself would be in reach.
fn through_the_proxy(scene: &Scene<'_>) -> Finding {
    if !scene.stage.has_proxy || scene.host().is_none() {
        return Finding::Skipped("needs a service with the egress proxy".into());
    }
    // A port that the proxy lets pass, so that it is the address that is refused; of all services one at a time has it.
    static ALLOWED: Mutex<()> = Mutex::new(());
    let _one = ALLOWED.lock().unwrap_or_else(PoisonError::into_inner);
    let bound = TcpListener::bind("127.0.0.1:80").or_else(|_| TcpListener::bind("127.0.0.1:443"));
    let Ok(listener) = bound else {
        return Finding::Skipped("needs to listen on port 80 or 443 of the host of the service".into());
    };
    listener.set_nonblocking(true).unwrap();
    let ports = [listener.local_addr().unwrap().port(), scene.client().address.port()];
    let prey = Prey { control: vec![ports[0].to_string()], evil: ports.map(|port| port.to_string()).into() };
    judge(payload::hunt(scene, "network.py", &prey), listener.accept())
}

/// The run listens, and the host tries to connect while it does.
fn listening(scene: &Scene<'_>) -> Finding {
    if scene.host().is_none() {
        return needs_host();
    }
    payload::control(&scene.control(), &scene.control().workspace(), "network.py", &[]);
    // Free a moment ago, and below what the kernel gives out by itself.
    let port = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let tree = scene.workspace();
    payload::plant(scene, &tree, "network.py");
    let request = payload::request(scene, "network.py", scene.name, Mode::Evil, &[port.to_string()]);
    std::thread::scope(|threads| {
        let run = threads.spawn(|| scene.exec(&tree, &request));
        let begun = Instant::now();
        while !run.is_finished() && scene.client().get(format!("{tree}/stat?path=listening")).status != 200 {
            assert!(begun.elapsed() < paced(Duration::from_secs(20)), "the payload never listened");
            std::thread::sleep(Duration::from_millis(10));
        }
        let reached = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_millis(300));
        scene.write("enough", "");
        let finding = payload::judge(scene, &run.join().unwrap());
        if reached.is_ok() { Finding::Through("the host could connect to a run".into()) } else { finding }
    })
}
