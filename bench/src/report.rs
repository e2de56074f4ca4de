//! [`Row`]: one line of the table, and the table itself.

use std::fmt::Write;
use std::path::Path;

/// What a row's figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Microseconds; less is better.
    Micros,
    /// Milliseconds; less is better.
    Millis,
    /// Requests per second; more is better.
    PerSecond,
    /// Megabytes (10^6 bytes) per second; more is better.
    MegabytesPerSecond,
    /// Megabytes (10^6 bytes); less is better.
    Megabytes,
}

impl Unit {
    fn shown(self, value: f64) -> String {
        let (value, unit) = match self {
            Self::Micros if value >= 10_000.0 => (value / 1000.0, "ms"),
            Self::Micros => (value, "µs"),
            Self::Millis => (value, "ms"),
            Self::PerSecond => (value, "/s"),
            Self::MegabytesPerSecond => (value, "MB/s"),
            Self::Megabytes => (value, "MB"),
        };
        let digits = if value >= 100.0 { 0 } else { usize::from(value < 10.0) + 1 };
        format!("{value:.digits$} {unit}")
    }
}

/// A median over the rounds, with what one request in a hundred exceeds where that was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// The median.
    pub value: f64,
    /// The 99th percentile, in the same unit.
    pub tail: Option<f64>,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self { value, tail: None }
    }
}

impl Figure {
    /// The figure in another unit.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { value: self.value * factor, tail: self.tail.map(|tail| tail * factor) }
    }
}

/// One workload: the median of each side.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was done.
    pub name: String,
    /// What the figures are.
    pub unit: Unit,
    /// filesecbox, in a skill: the merged view of baseline and overlay.
    pub skill: Option<Figure>,
    /// filesecbox, in a workspace.
    pub workspace: Option<Figure>,
    /// The bare service.
    pub bare: Option<Figure>,
    /// The same without a service.
    pub native: Option<Figure>,
    /// The ratio to the bare service that was set as the goal, or another goal in words.
    pub goal: &'static str,
}

impl Row {
    fn cells(&self) -> [String; 8] {
        let shown = |figure: Option<Figure>| match figure {
            None => "–".to_owned(),
            Some(Figure { value, tail: None }) => self.unit.shown(value),
            Some(Figure { value, tail: Some(tail) }) => {
                format!("{} ({})", self.unit.shown(value), self.unit.shown(tail))
            }
        };
        let ratio = |figure: Option<Figure>| match (figure, self.bare) {
            (Some(figure), Some(bare)) if bare.value > 0.0 => format!("{:.2}", figure.value / bare.value),
            _ => "–".to_owned(),
        };
        [
            self.name.clone(),
            shown(self.skill),
            shown(self.workspace),
            shown(self.bare),
            shown(self.native),
            ratio(self.skill),
            ratio(self.workspace),
            self.goal.to_owned(),
        ]
    }
}

const HEADINGS: [&str; 8] =
    ["Workload", "skill", "workspace", "bare axum", "no service", "skill ÷ bare", "workspace ÷ bare", "goal"];

/// The rows as a table of Markdown.
#[must_use]
pub(crate) fn table(rows: &[Row], headings: bool) -> String {
    let mut text = String::new();
    let mut line = |cells: &[String; 8]| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    if headings {
        line(&HEADINGS.map(str::to_owned));
        line(&["---", "---:", "---:", "---:", "---:", "---:", "---:", "---"].map(str::to_owned));
    }
    for row in rows {
        line(&row.cells());
    }
    text
}

/// Where and when the figures were taken: processor, kernel, file system, load.
#[must_use]
pub(crate) fn circumstances(place: &Path) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load: Vec<String> = read("/proc/loadavg").split(' ').take(3).map(str::to_owned).collect();
    let device = rustix::fs::statfs(place).map_or(0, |status| status.f_type);
    // Magic numbers of statfs(2).
    let file_system = match device {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        _ => "another file system",
    };
    format!(
        "{cores} × {}, Linux {}, {file_system}, load average {}",
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim(),
        load.join(" ")
    )
}
