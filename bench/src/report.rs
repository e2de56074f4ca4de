//! [`Row`]: one line of the table, and the table itself.

use std::fmt::Write;

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

/// The rows as a table of Markdown, without headings when `body_only`.
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
