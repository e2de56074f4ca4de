//! Users whose machines are runners of their own: processes, with commands that are confined where the kernel can.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use sandbox::wire::register::Registered;
use sandbox::wire::{Feature, Frame, Register};
use sandbox::{Link, RemoteSandbox, Sandbox, UserId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Message;

/// A backend whose users each have a process, with workspaces in `root`; and the processes, which end when they are dropped.
///
/// With `is_rough`, the way between them is slow, splits frames and is cut at random.
pub(crate) async fn connected(root: &Path, users: &[&str], is_rough: bool) -> (Arc<dyn Sandbox>, Vec<Child>) {
    let remote = Arc::new(RemoteSandbox::new());
    let mut processes = Vec::new();
    for name in users {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut address = listener.local_addr().unwrap();
        if is_rough {
            address = rough(address).await;
        }
        let url = format!("ws://{address}/ws/{name}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_filesecbox-runner"));
        command.args(["--server", &url, "--reconnect-seconds", "1", "--workspace"]).arg(root.join(name));
        command
            .env("FILESECBOX_RUNNER_TOKEN", "token")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        processes.push(command.kill_on_drop(true).spawn().unwrap());
        let user = UserId::parse(name).unwrap();
        let taken = Arc::new(Notify::new());
        tokio::spawn(serve(listener, user, Arc::clone(&remote), Arc::clone(&taken)));
        taken.notified().await;
    }
    (remote, processes)
}

/// Takes the runner of `user`, again and again.
async fn serve(listener: TcpListener, user: UserId, remote: Arc<RemoteSandbox>, taken: Arc<Notify>) {
    loop {
        let stream = listener.accept().await.unwrap().0;
        let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { continue };
        let Some(Ok(first)) = socket.next().await else { continue };
        let first = first.into_text().unwrap();
        let register = Register::read(&Frame::parse(&first).unwrap()).unwrap();
        let features =
            register.features.iter().copied().filter(|one| *one != Feature::Transfers).collect::<Vec<_>>();
        let (link, mut asked) = Link::new(user.clone(), &register, &features).unwrap();
        if socket.send(Message::text(Registered::new(features).to_text())).await.is_err() {
            continue;
        }
        remote.attach(Arc::clone(&link));
        taken.notify_one();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    frame = asked.recv() => match frame {
                        Some(frame) if socket.send(Message::text(frame.text.clone())).await.is_ok() => {}
                        _ => return link.end(),
                    },
                    frame = socket.next() => match frame {
                        Some(Ok(Message::Text(text))) => link.receive(&text),
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => return link.end(),
                    },
                }
            }
        });
    }
}

/// A way to `service` on which each piece of at most 6000 bytes takes a millisecond more, and which is cut after 0.5 to 5 seconds each time,
/// in the middle of whatever is on it.
async fn rough(service: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let mut runner = listener.accept().await.unwrap().0;
            let mut service = TcpStream::connect(service).await.unwrap();
            let lasts = Duration::from_millis(500 + getrandom::u64().unwrap() % 4500);
            tokio::spawn(async move {
                let (mut from_runner, mut to_runner) = runner.split();
                let (mut from_service, mut to_service) = service.split();
                tokio::select! {
                    () = pass(&mut from_runner, &mut to_service) => {}
                    () = pass(&mut from_service, &mut to_runner) => {}
                    () = tokio::time::sleep(lasts) => {}
                }
                CUTS.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    address
}

/// How often a rough way was cut.
pub(crate) static CUTS: AtomicUsize = AtomicUsize::new(0);

async fn pass(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) {
    let mut piece = [0; 6000];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if to.write_all(piece.get(..read).unwrap_or_default()).await.is_err() {
            return;
        }
    }
}
