//! The cost of the trait to an agent: `ServiceSandbox` against the same requests by a client that does nothing else.

use std::fmt::Display;
use std::time::Instant;

use sandbox::{AgentId, ExecSpec, Sandbox, SandboxExt, SandboxPath, ServiceOptions, ServiceSandbox, UserId};
use tokio::runtime::Runtime;

use crate::client;
use crate::error::{Failure, Result};
use crate::load::{self, Sample, Slice};
use crate::report::{Figure, Layout, Row, Unit};
use crate::sides::{Bench, Side, Tree};
use crate::workloads::{Lines, figure};

/// Bytes of the file that is read.
const FILE_BYTES: usize = 4096;

/// The backend and the bare request.
pub(crate) const LAYOUT: Layout =
    Layout { columns: &["`ServiceSandbox`", "bare request"], ratios: &[("backend ÷ request", 0, 1)] };

/// Who asks.
enum Asker<'a> {
    Backend(&'a Backend),
    Client,
}

struct Backend {
    runtime: Runtime,
    sandbox: ServiceSandbox,
    user: UserId,
    path: SandboxPath,
}

/// Reading a small file, and the shortest command.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn backend(bench: &Bench) -> Result<Vec<Row>> {
    let side = Side::new(&bench.relaxed.filesecbox, Tree::Workspace);
    let mut lines = Lines::default();
    let content = vec![b'x'; FILE_BYTES];
    let target = side.target("raw/backend.txt?parents=true");
    lines.of(&side)?.call(&client::with_body("PUT", &target, "text/plain", &content))?;
    let backend = Backend::new(&side)?;
    let slice = bench.effort.slice;
    let read = client::get(&side.target("raw/backend.txt"));
    let reads = bench.compare([Asker::Backend(&backend), Asker::Client], |asker| {
        let sample = match asker {
            Asker::Backend(backend) => backend.reads(slice)?,
            Asker::Client => load::serial(lines.of(&side)?, slice, &mut || read.clone())?,
        };
        Ok(figure(&sample))
    })?;
    // What the backend asks for as well: bytes that survive, and a name by which the run could be killed.
    let mut number = 0_u64;
    let runs = bench.compare([Asker::Backend(&backend), Asker::Client], |asker| {
        let sample = match asker {
            Asker::Backend(backend) => backend.runs(slice)?,
            Asker::Client => load::serial(lines.of(&side)?, slice, &mut || {
                number += 1;
                let spec =
                    format!("{{\"shell\":\"true\",\"encoding\":\"base64\",\"exec_id\":\"bench-{number}\"}}");
                client::with_body("POST", &side.target("exec"), "application/json", spec.as_bytes())
            })?,
        };
        Ok(figure(&sample))
    })?;
    let row = |name: &str, figures: [Figure; 2]| Row {
        name: name.to_owned(),
        unit: Unit::Micros,
        figures: figures.map(Some).to_vec(),
        goal: "≤ 1.3",
    };
    Ok(vec![row("`read_file` of 4 KiB, p50", reads), row("`exec` of `true`, p50", runs)])
}

impl Backend {
    fn new(side: &Side) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let agent = AgentId::parse("a").map_err(failed)?;
        let address = format!("http://{}", side.address);
        let options = ServiceOptions { address, authorities: None, token: None, agent, skills: false };
        Ok(Self {
            runtime: runtime.map_err(Failure::io("start a runtime"))?,
            sandbox: ServiceSandbox::new(options).map_err(failed)?,
            user: UserId::parse(&side.user).map_err(failed)?,
            path: SandboxPath::parse("/workspace/backend.txt").map_err(failed)?,
        })
    }

    fn reads(&self, slice: Slice) -> Result<Sample> {
        self.timed(slice, async || self.sandbox.read(&self.user, &self.path).await.map(drop))
    }

    fn runs(&self, slice: Slice) -> Result<Sample> {
        self.timed(slice, async || self.sandbox.exec(&self.user, ExecSpec::shell("true")).await.map(drop))
    }

    fn timed(&self, slice: Slice, call: impl AsyncFn() -> sandbox::Result<()>) -> Result<Sample> {
        let (mut latencies, start) = (Vec::new(), Instant::now());
        self.runtime.block_on(async {
            while latencies.len() < slice.calls
                && (start.elapsed() < slice.time || latencies.len() < slice.calls_min)
            {
                let asked = Instant::now();
                call().await.map_err(failed)?;
                latencies.push(asked.elapsed());
            }
            Ok(load::sample(latencies, start.elapsed()))
        })
    }
}

fn failed(error: impl Display) -> Failure {
    Failure::NotReady(format!("the backend ({error})"))
}
