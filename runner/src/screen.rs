//! [`Screen`]: the log, and a bar for files that are carried, where somebody looks at a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing_subscriber::fmt::MakeWriter;

/// How often the bar is drawn, at most.
const DRAW: Duration = Duration::from_millis(100);
/// The characters of a bar.
const BAR: usize = 20;
/// The longest name that is shown, in characters.
const NAME: usize = 30;
/// Goes to the beginning of the line and clears it (ECMA-48, `EL`).
const CLEAR: &[u8] = b"\r\x1b[K";

/// Where the log goes. On a terminal, the last line is a bar while files are carried. A clone is the same.
#[derive(Clone)]
pub(crate) struct Screen(Arc<Mutex<State>>);

struct State {
    out: Box<dyn Write + Send>,
    is_terminal: bool,
    /// The files that are carried, the oldest first.
    files: Vec<File>,
    next: u64,
    is_drawn: bool,
    drawn: Option<Instant>,
}

struct File {
    number: u64,
    name: String,
    is_sent: bool,
    /// How large it is, where that is known.
    total: Option<u64>,
    bytes: u64,
    begun: Instant,
}

/// A file that is carried; its bar goes when this is dropped.
pub(crate) struct Carried {
    screen: Screen,
    number: u64,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Screen").finish_non_exhaustive()
    }
}

impl Screen {
    /// Standard error.
    pub(crate) fn stderr() -> Self {
        Self::new(Box::new(io::stderr()), io::stderr().is_terminal())
    }

    fn new(out: Box<dyn Write + Send>, is_terminal: bool) -> Self {
        let state = State { out, is_terminal, files: Vec::new(), next: 0, is_drawn: false, drawn: None };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Shows that the file `name` is sent, or fetched, until the result is dropped.
    pub(crate) fn carry(&self, name: &str, is_sent: bool, total: Option<u64>) -> Carried {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        // The service chose the name: it may hold what commands a terminal.
        let name = name.chars().filter(|one| !one.is_control()).take(NAME).collect();
        state.files.push(File { number, name, is_sent, total, bytes: 0, begun: Instant::now() });
        drop(state);
        Carried { screen: self.clone(), number }
    }
}

impl Carried {
    /// Notes that `bytes` have been carried in all.
    pub(crate) fn at(&self, bytes: u64) {
        let mut state = self.screen.0.lock();
        if let Some(file) = state.files.iter_mut().find(|file| file.number == self.number) {
            file.bytes = bytes;
        }
        if state.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW) {
            state.draw();
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let mut state = self.screen.0.lock();
        state.files.retain(|file| file.number != self.number);
        state.draw();
    }
}

impl State {
    /// Draws the bar of the oldest file, or removes it. A terminal that is gone shows nothing.
    fn draw(&mut self) {
        if !self.is_terminal {
            return;
        }
        let line = self.files.first().map(|file| file.line(self.files.len() - 1));
        if line.is_none() && !self.is_drawn {
            return;
        }
        let _gone = self.out.write_all(CLEAR);
        let _gone = self.out.write_all(line.as_deref().unwrap_or_default().as_bytes());
        let _gone = self.out.flush();
        (self.is_drawn, self.drawn) = (line.is_some(), Some(Instant::now()));
    }
}

impl File {
    fn line(&self, others: usize) -> String {
        let verb = if self.is_sent { "sending" } else { "fetching" };
        let megabytes = |bytes: u64| format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10);
        let seconds = self.begun.elapsed().as_millis().max(1);
        let pace = u64::try_from(u128::from(self.bytes) * 1000 / seconds).unwrap_or(u64::MAX);
        let done = match self.total.filter(|total| *total > 0) {
            Some(total) => {
                let part = usize::try_from(u128::from(self.bytes) * BAR as u128 / u128::from(total));
                let part = part.unwrap_or(BAR).min(BAR);
                format!(
                    "[{}{}] {} of {} MB",
                    "#".repeat(part),
                    "-".repeat(BAR - part),
                    megabytes(self.bytes),
                    megabytes(total)
                )
            }
            None => format!("{} MB", megabytes(self.bytes)),
        };
        let more = if others > 0 { format!(", {others} more") } else { String::new() };
        format!("{verb} {} {done}, {} MB/s{more}", self.name, megabytes(pace))
    }
}

/// A line of the log, written as one.
pub(crate) struct Line<'a>(&'a Screen, Vec<u8>);

impl<'a> MakeWriter<'a> for Screen {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self, Vec::new())
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        if state.is_drawn {
            let _gone = state.out.write_all(CLEAR);
        }
        let _gone = state.out.write_all(&self.1);
        let _gone = state.out.flush();
        if state.is_drawn {
            state.draw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Shown(Arc<Mutex<Vec<u8>>>);

    impl Write for Shown {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shown {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock())).unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_terminal_shows_a_bar_below_the_log_until_the_file_is_carried() {
        let shown = Shown::default();
        let screen = Screen::new(Box::new(shown.clone()), true);
        let first = screen.carry("a\u{1b}[2J.bin", true, Some(10_000_000));
        tokio::time::advance(Duration::from_secs(1)).await;
        first.at(2_500_000);
        assert_eq!(
            shown.take(),
            "\r\u{1b}[Ksending a[2J.bin [#####---------------] 2.5 of 10.0 MB, 2.5 MB/s"
        );
        first.at(2_600_000);
        assert_eq!(shown.take(), "", "not drawn all the time");
        screen.make_writer().write_all(b"a line\n").unwrap();
        let drawn = shown.take();
        assert!(drawn.starts_with("\r\u{1b}[Ka line\n\r\u{1b}[Ksending"), "{drawn:?}");
        let second = screen.carry("b", false, None);
        drop(first);
        assert_eq!(shown.take(), "\r\u{1b}[Kfetching b 0.0 MB, 0.0 MB/s");
        drop(second);
        assert_eq!(shown.take(), "\r\u{1b}[K");
        screen.make_writer().write_all(b"alone\n").unwrap();
        assert_eq!(shown.take(), "alone\n");
    }

    #[tokio::test]
    async fn a_log_that_is_no_terminal_has_no_bar() {
        let shown = Shown::default();
        let screen = Screen::new(Box::new(shown.clone()), false);
        let file = screen.carry("a", true, Some(10));
        file.at(5);
        screen.make_writer().write_all(b"a line\n").unwrap();
        drop(file);
        assert_eq!(shown.take(), "a line\n");
    }
}
