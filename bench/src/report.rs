//! [`Row`]: one line of a table; [`Layout`]: what its columns are; the tables themselves.

use std::fmt::Write;
use std::path::Path;

/// The meaning of a row's figures.
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

/// The columns of a table, and which of them are divided by which.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The headings of the figures.
    pub columns: &'static [&'static str],
    /// The ratios: heading, dividend and divisor, as numbers of columns.
    pub ratios: &'static [(&'static str, usize, usize)],
}

/// The merged view and the workspace against the bare service, and the floor without any.
pub(crate) const SERVICES: Layout = Layout {
    columns: &["skill", "workspace", "bare axum", "no service"],
    ratios: &[("skill ÷ bare", 0, 2), ("workspace ÷ bare", 1, 2)],
};

/// One workload: the median of each side.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The workload.
    pub name: String,
    /// The meaning of the figures.
    pub unit: Unit,
    /// One for each column of the layout; `None` where there is nothing to measure.
    pub figures: Vec<Option<Figure>>,
    /// The goal of the ratios, or another goal in words.
    pub goal: &'static str,
}

impl Row {
    fn cells(&self, layout: &Layout) -> Vec<String> {
        let shown = |figure: &Option<Figure>| match figure {
            None => "–".to_owned(),
            Some(Figure { value, tail: None }) => self.unit.shown(*value),
            Some(Figure { value, tail: Some(tail) }) => {
                format!("{} ({})", self.unit.shown(*value), self.unit.shown(*tail))
            }
        };
        let at = |column: usize| self.figures.get(column).copied().flatten();
        let ratio = |(_, of, to): &(&str, usize, usize)| match (at(*of), at(*to)) {
            (Some(of), Some(to)) if to.value > 0.0 => format!("{:.2}", of.value / to.value),
            _ => "–".to_owned(),
        };
        let mut cells = vec![self.name.clone()];
        cells.extend(self.figures.iter().map(shown));
        cells.extend(layout.ratios.iter().map(ratio));
        cells.push(self.goal.to_owned());
        cells
    }
}

/// The rows as a table of Markdown with its headings; `aligned` for a terminal.
#[must_use]
pub(crate) fn table(layout: &Layout, rows: &[Row], aligned: bool) -> String {
    let figures = layout.columns.iter().copied().chain(layout.ratios.iter().map(|(heading, ..)| *heading));
    let headings: Vec<&str> = ["Workload"].into_iter().chain(figures).chain(["goal"]).collect();
    let inner = headings.len().saturating_sub(2);
    let mut lines: Vec<Vec<String>> = vec![
        headings.into_iter().map(str::to_owned).collect(),
        ["---"].into_iter().chain(vec!["---:"; inner]).chain(["---"]).map(str::to_owned).collect(),
    ];
    lines.extend(rows.iter().map(|row| row.cells(layout)));
    let mut widths = vec![0; inner + 2];
    if aligned {
        for cells in &lines {
            for (cell, width) in cells.iter().zip(&mut widths) {
                *width = cell.chars().count().max(*width);
            }
        }
    }
    let mut text = String::new();
    for cells in lines {
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
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
