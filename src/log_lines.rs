//! [`LogLines`]: lines of the log on their way to standard error, written together.
//!
//! A system call for the line of each request is 6 to 10 % of what a small one costs. Lines of one [`TOGETHER`] are written by
//! one call, from a thread of their own, which is woken once for all of them: `tracing-appender` hands each line over by itself. Warnings and errors are
//! written at once, with all that came before them. A process that is killed loses the lines of the last moment, but no warning
//! and no error. When nobody reads standard error, so many bytes wait, and then those who log.

use std::io::{self, Write};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long a line may wait.
const TOGETHER: Duration = Duration::from_millis(10);
/// Bytes of lines that may wait. Whoever writes more writes them out.
const WAITING_MAX: usize = 256 * 1024;

static LINES: Lines = Lines::new();

struct Lines {
    waiting: Mutex<Waiting>,
    has_come: Condvar,
    /// Lines that are being written. Whoever holds it writes to standard error, so that lines stay in their order. Taken before
    /// `waiting`.
    output: Mutex<Vec<u8>>,
}

struct Waiting {
    lines: Vec<u8>,
    /// Whether a thread writes what waits.
    waits: bool,
}

impl Lines {
    const fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting { lines: Vec::new(), waits: false }),
            has_come: Condvar::new(),
            output: Mutex::new(Vec::new()),
        }
    }

    fn write_out(&self) -> io::Result<()> {
        self.write_to(&mut io::stderr())
    }

    fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        let mut output = self.output.lock();
        std::mem::swap(&mut *output, &mut self.waiting.lock().lines);
        let written = to.write_all(&output);
        output.clear();
        written
    }

    /// Adds a line. Tells whether its sender has to write it out.
    fn add(&self, line: &[u8]) -> bool {
        let mut waiting = self.waiting.lock();
        let is_first = waiting.lines.is_empty();
        waiting.lines.extend_from_slice(line);
        if is_first {
            self.has_come.notify_one();
        }
        !waiting.waits || waiting.lines.len() >= WAITING_MAX
    }

    fn write_together(&self) -> ! {
        loop {
            {
                let mut waiting = self.waiting.lock();
                self.has_come.wait_while(&mut waiting, |waiting| waiting.lines.is_empty());
            }
            std::thread::sleep(TOGETHER);
            // Nobody can be told that the log cannot be written.
            let _ = self.write_out();
        }
    }
}

/// From now on, lines are written together, by a thread that this starts.
///
/// # Errors
/// The thread cannot be made.
pub(crate) fn write_together() -> io::Result<()> {
    std::thread::Builder::new().name("log".to_owned()).spawn(|| LINES.write_together())?;
    LINES.waiting.lock().waits = true;
    Ok(())
}

/// Writes out what waits, and from now on each line as it comes.
pub(crate) fn stop_waiting() {
    LINES.waiting.lock().waits = false;
    let _ = LINES.write_out();
}

/// Makes the writers of the log.
pub(crate) struct LogLines;

/// A writer of one line.
pub(crate) struct Line {
    is_urgent: bool,
}

impl MakeWriter<'_> for LogLines {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line { is_urgent: true }
    }

    fn make_writer_for(&self, meta: &Metadata<'_>) -> Line {
        Line { is_urgent: *meta.level() <= Level::WARN }
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let is_due = LINES.add(line) || self.is_urgent;
        if is_due {
            LINES.write_out()?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        LINES.write_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written, and how often.
    #[derive(Clone, Default)]
    struct Written(std::sync::Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.0.lock();
            written.0.extend_from_slice(bytes);
            written.1 += 1;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_of_many_threads_come_whole_each_once_and_in_the_order_of_their_thread() {
        let (lines, written) = (Lines::new(), Written::default());
        lines.waiting.lock().waits = true;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (lines, mut written) = (&lines, written.clone());
                scope.spawn(move || {
                    for number in 0..1000 {
                        let is_due = lines.add(format!("{thread} {number}\n").as_bytes());
                        // Every hundredth is a warning.
                        if is_due || number % 100 == 99 {
                            lines.write_to(&mut written).unwrap();
                        }
                    }
                });
            }
        });
        let written = written.0.lock();
        // One that finds nothing, because another thread has just written its line, writes nothing.
        assert!((1..=40).contains(&written.1), "{}", written.1);
        let text = std::str::from_utf8(&written.0).unwrap();
        for thread in 0..4 {
            let own = text.lines().filter_map(|line| line.strip_prefix(&format!("{thread} ")));
            assert!(own.eq((0..1000).map(|number| number.to_string())), "{thread}");
        }
    }

    #[test]
    fn as_many_lines_wait_as_may_and_none_where_no_thread_writes_them() {
        let lines = Lines::new();
        assert!(lines.add(b"before the thread\n"));
        lines.waiting.lock().waits = true;
        let line = [b'x'; 1024];
        let waited = (0..1024).take_while(|_| !lines.add(&line)).count();
        assert_eq!(waited, WAITING_MAX / line.len() - 1);
        let mut written = Vec::new();
        lines.write_to(&mut written).unwrap();
        assert!(written.len() >= WAITING_MAX && !lines.add(&line));
    }
}
