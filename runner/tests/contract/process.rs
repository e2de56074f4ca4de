//! Users whose machines are runners of their own: processes, with commands that are confined where the kernel can.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use sandbox::wire::register::Registered;
use sandbox::wire::{Frame, Register};
use sandbox::{Link, RemoteSandbox, Sandbox, UserId};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_tungstenite::tungstenite::Message;

/// A backend whose users each have a process, with workspaces in `root`; and the processes, which end when they are dropped.
pub(crate) async fn connected(root: &Path, users: &[&str]) -> (Arc<dyn Sandbox>, Vec<Child>) {
    let remote = Arc::new(RemoteSandbox::new());
    let mut processes = Vec::new();
    for name in users {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/ws/{name}", listener.local_addr().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_filesecbox-runner"));
        command.args(["--server", &url, "--workspace"]).arg(root.join(name));
        command
            .env("FILESECBOX_RUNNER_TOKEN", "token")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        processes.push(command.kill_on_drop(true).spawn().unwrap());
        let stream = listener.accept().await.unwrap().0;
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let first = socket.next().await.unwrap().unwrap().into_text().unwrap();
        let register = Register::read(&Frame::parse(&first).unwrap()).unwrap();
        let user = UserId::parse(name).unwrap();
        let (link, mut asked) = Link::new(user, &register, &register.features).unwrap();
        socket.send(Message::text(Registered::new(register.features).to_text())).await.unwrap();
        remote.attach(Arc::clone(&link));
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    frame = asked.recv() => match frame {
                        Some(frame) => socket.send(Message::text(frame.text.clone())).await.unwrap(),
                        None => return,
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
    (remote, processes)
}
