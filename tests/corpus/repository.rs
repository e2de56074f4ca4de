//! [`Repository`]: a repository of git, served over HTTPS by this suite with a certificate of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::host;

/// Where it is served: not 127.0.0.1, which commands reach without the proxy, in their own network.
pub(crate) const ADDRESS: &str = "127.0.0.2";

/// Makes a repository with two commits and the files by which git reads it without a program on the server
/// (git-update-server-info(1)), and a certificate for [`ADDRESS`].
const MAKE: &str = r#"
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git init -q -b main work
echo 'first' > work/README.md; git -C work add .; git -C work commit -q -m 'First'
echo 'second' >> work/README.md; git -C work commit -q -am 'Second'
git clone -q --bare work served/project.git
git -C served/project.git update-server-info
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=corpus -addext "subjectAltName=IP:$ADDRESS" \
  -addext basicConstraints=critical,CA:TRUE -keyout key.pem -out ca.pem 2>/dev/null
"#;

/// Serves a directory over HTTPS and says at which port.
const SERVE: &str = r#"
import functools, http.server, ssl, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="served")
server = http.server.ThreadingHTTPServer((sys.argv[1], 0), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("ca.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

/// The repository while it is served.
pub(crate) struct Repository {
    pub(crate) port: u16,
    certificate: String,
    child: Child,
    _dir: TempDir,
}

impl Repository {
    /// Makes and serves it, where this host has what that takes.
    pub(crate) fn serve() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("served")).unwrap();
        let mut make = system("bash", dir.path());
        let made = make.args(["-e", "-c", MAKE]).env("ADDRESS", ADDRESS).status();
        if !host::granted("corpus", made.is_ok_and(|status| status.success())) {
            return None;
        }
        let mut serve = system("python3", dir.path());
        let mut child =
            serve.args(["-c", SERVE, ADDRESS]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let certificate = fs::read_to_string(dir.path().join("ca.pem")).unwrap();
        Some(Self { port: line.trim().parse().unwrap(), certificate, child, _dir: dir })
    }

    /// A text of a plan with the address and the certificate in it.
    pub(crate) fn fill(&self, text: &str) -> String {
        let address = format!("https://{ADDRESS}:{}/project.git", self.port);
        text.replace("{repository}", &address).replace("{certificate}", &self.certificate)
    }
}

fn system(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env("PATH", "/usr/local/bin:/usr/bin:/bin").stdin(Stdio::null());
    command
}

impl Drop for Repository {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
