//! [`Form`]: the two text forms of figures.

/// A text form of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The one that every reader knows
    /// (<https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>, 0.0.4).
    Plain,
    /// OpenMetrics 1.0.0, which Prometheus asks for since its version 2.5.
    OpenMetrics,
}

impl Form {
    /// The form for a caller with these `Accept` headers.
    #[must_use]
    pub fn of<'a>(mut accepted: impl Iterator<Item = &'a str>) -> Self {
        match accepted.any(|header| header.contains("application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Plain,
        }
    }

    /// Its `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The figures in this form.
    pub(super) fn of_open_metrics(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Plain => plain(&text),
        }
    }
}

/// OpenMetrics as the older form: there, a counter is described by the name of its samples, and there are no units and no
/// end.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").and_then(|help| help.split_once(' '));
        let counter = lines.peek().and_then(|next| next.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
        if let Some((family, help)) = help.filter(|(family, _)| counter == Some(*family)) {
            out.push_str(&format!("# HELP {family}_total {help}\n# TYPE {family}_total counter\n"));
            lines.next();
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_described_by_the_name_of_its_samples() {
        let open = "# HELP a Help of a.\n# TYPE a counter\na_total{b=\"c\"} 1\n\
                    # HELP d_seconds Time.\n# TYPE d_seconds gauge\n# UNIT d_seconds seconds\nd_seconds 2\n# EOF\n";
        let expected = "# HELP a_total Help of a.\n# TYPE a_total counter\na_total{b=\"c\"} 1\n\
                        # HELP d_seconds Time.\n# TYPE d_seconds gauge\nd_seconds 2\n";
        assert_eq!(Form::Plain.of_open_metrics(open.to_owned()), expected);
        assert_eq!(Form::OpenMetrics.of_open_metrics(open.to_owned()), open);
    }

    #[test]
    fn who_asks_for_open_metrics_gets_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Form::of([prometheus].into_iter()), Form::OpenMetrics);
        for other in ["*/*", "text/plain", "application/json"] {
            assert_eq!(Form::of([other].into_iter()), Form::Plain);
        }
        assert_eq!(Form::of(std::iter::empty()), Form::Plain);
    }
}
