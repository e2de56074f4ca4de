//! What the processes of a run have written to the disk, as far as looks at them tell.
//!
//! What counts is what a process has written to files on a disk, as the kernel accounts for it when it takes the bytes, long before they are
//! there (`write_bytes`).
//!
//! # References
//! `proc_pid_io(5)`; Documentation/filesystems/proc.rst of Linux (3.3); `wait_task_zombie` in kernel/exit.c of Linux, by which the figure of a
//! process has in it those of all children that it has collected.

use std::collections::HashMap;

use super::processes::Process;

/// What is known of the writing of one run.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// The processes at the last look: the parent of each, and what it had written. `None` until a look while others are there.
    pub(super) seen: Option<HashMap<i32, (i32, u64)>>,
    /// The first process, where it only waits: it may have collected what earlier runs wrote.
    waiting: Option<i32>,
    /// Those that pause, parents before their children.
    pub(super) paused: Vec<i32>,
}

impl Writing {
    /// Of a run whose first process may only be `waiting`. If it begins while others are there, all that it writes counts.
    pub(super) fn new(waiting: Option<i32>, begins_among_others: bool) -> Self {
        Self { seen: begins_among_others.then(HashMap::new), waiting, paused: Vec::new() }
    }

    /// How many bytes the processes have written since the last look; how many that hide it wait for the disk.
    ///
    /// What a parent has by collecting a child is not counted again.
    pub(super) fn more(&mut self, now: &[Process]) -> (u64, u32) {
        let current = now.iter().map(|process| (process.pid, (process.parent, process.written.unwrap_or(0))));
        let current: HashMap<i32, (i32, u64)> = current.collect();
        let hidden =
            now.iter().filter(|process| process.written.is_none() && process.state == Some('D')).count();
        let hidden = u32::try_from(hidden).unwrap_or(u32::MAX);
        let Some(before) = self.seen.replace(current) else { return (0, hidden) };
        let current = self.seen.iter().flatten();
        let mut collected: HashMap<i32, u64> = HashMap::new();
        for (_, (parent, written)) in before.iter().filter(|(pid, _)| !self.has_seen(**pid)) {
            let mut collector = *parent;
            for _ in 0..before.len() {
                match before.get(&collector) {
                    Some((above, _)) if !self.has_seen(collector) => collector = *above,
                    _ => break,
                }
            }
            *collected.entry(collector).or_default() += written;
        }
        let more = current.map(|(pid, (_, written))| {
            let at_first = if Some(*pid) == self.waiting { *written } else { 0 };
            let known = before.get(pid).map_or(at_first, |(_, written)| *written);
            written.saturating_sub(known).saturating_sub(collected.get(pid).copied().unwrap_or(0))
        });
        (more.sum(), hidden)
    }

    fn has_seen(&self, pid: i32) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.contains_key(&pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, written: u64) -> Process {
        Process { pid, parent, written: Some(written), state: Some('S') }
    }

    #[test]
    fn what_a_parent_has_by_collecting_its_children_counts_once() {
        let mut writing = Writing::new(Some(1), true);
        // The first process has its figure from another run.
        assert_eq!(writing.more(&[process(1, 0, 10), process(2, 1, 100), process(3, 2, 1_000)]), (1_100, 0));
        assert_eq!(writing.more(&[process(1, 0, 10), process(2, 1, 100), process(3, 2, 3_000)]), (2_000, 0));
        // 3 wrote 500 more, 2 collected it and wrote 7, 1 collected that: and has another child.
        assert_eq!(writing.more(&[process(1, 0, 3_617), process(4, 1, 20)]), (527, 0));
        // Nobody collects 4.
        assert_eq!(writing.more(&[process(1, 0, 3_617), process(5, 1, 30)]), (30, 0));
    }

    #[test]
    fn what_was_written_before_others_came_does_not_count() {
        let mut writing = Writing::default();
        assert_eq!(writing.more(&[process(1, 0, 1_000)]), (0, 0));
        assert_eq!(writing.more(&[process(1, 0, 1_001)]), (1, 0));
        let hidden = Process { written: None, state: Some('D'), ..process(2, 1, 0) };
        assert_eq!(writing.more(&[process(1, 0, 1_001), hidden]), (0, 1));
    }
}
