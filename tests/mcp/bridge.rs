//! The bridge `filesecbox mcp`, as a client starts it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Era, LEGACY, MODERN};
use crate::support::program;

/// Longest wait for an end. Only a program that hangs reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running bridge.
pub(crate) struct Bridge {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// The command of a bridge to `url`.
pub(crate) fn command(url: &str) -> Command {
    let mut command = program();
    command.args(["mcp", "--server", url, "--user", "alice", "--agent", "demo"]);
    command
}

/// A request, as the era has it.
pub(crate) fn request(era: Era, id: impl Into<Value>, method: &str, mut params: Value) -> Value {
    if era == Era::Modern {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

/// A call of a tool.
pub(crate) fn call(era: Era, id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    request(era, id, "tools/call", json!({ "name": tool, "arguments": arguments }))
}

impl Bridge {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    /// A bridge whose client has begun, as those of the era do.
    pub(crate) fn begun(command: Command, era: Era) -> Self {
        let mut bridge = Self::start(command);
        match era {
            Era::Modern => drop(bridge.ask(&request(era, 0, "server/discover", json!({})))),
            Era::Legacy => {
                let client = json!({ "name": "test", "version": "1" });
                let hello = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client });
                let begun = bridge.ask(&request(era, 0, "initialize", hello));
                assert_eq!(begun["result"]["protocolVersion"], LEGACY, "{begun}");
                bridge.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
            }
        }
        bridge
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.line(&message.to_string());
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line, which is a message.
    #[track_caller]
    pub(crate) fn message(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Sends a request, whose answer is the next message.
    #[track_caller]
    pub(crate) fn ask(&mut self, message: &Value) -> Value {
        self.send(message);
        let answer = self.message();
        assert_eq!(answer["id"], message["id"], "{answer}");
        answer
    }

    /// Closes its input, waits for its end, and gives what it has written to both outputs since.
    pub(crate) fn end(mut self) -> (ExitStatus, String, String) {
        drop(self.stdin.take());
        let mut written = String::new();
        while self.stdout.read_line(&mut written).unwrap() > 0 {}
        let status = self.wait();
        let mut errors = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut errors).unwrap();
        (status, written, errors)
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
