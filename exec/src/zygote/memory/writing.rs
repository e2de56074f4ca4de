//! What the processes of a run have written to the disk, as far as looks at them tell.
//!
//! What counts is what a process has written to files on a disk, as the kernel accounts for it when it takes the bytes, long before they are
//! there (`write_bytes`).
//!
//! # References
//! `proc_pid_io(5)`; Documentation/filesystems/proc.rst of Linux (3.3); `wait_task_zombie` in kernel/exit.c of Linux, by which the figure of a
//! process has in it those of all children that it has collected.

use std::collections::HashMap;

use super::processes::{Writer, Written};

/// What is known of the writing of one run.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// The processes at the last look: the parent of each, and what it had written. `None` until a look while others are there.
    pub(super) seen: Option<HashMap<i32, (i32, u64)>>,
    /// The first process, where it only waits: it may have collected what earlier runs wrote.
    waiting: Option<i32>,
    /// What each process has written between the last two looks, in bytes.
    grown: Vec<(i32, u64)>,
    /// Those that pause, parents before their children.
    pub(super) paused: Vec<i32>,
    /// At how many looks in succession it had written although it was to pause.
    pub(super) defied: u32,
}

/// A run that is to pause has written nothing if it has written less than so many bytes.
const MUCH: u64 = 1 << 20;

/// What was found since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct More {
    pub(super) bytes: u64,
    /// How many processes are at work and hide what they write.
    pub(super) hidden: u32,
    /// How many others are at work whose figure is not shown.
    pub(super) unseen: u32,
    /// Of how many it is not known what they wrote at last, because no process of the run has collected them.
    pub(super) uncollected: u32,
}

impl Writing {
    /// Of a run whose first process may only be `waiting`. If it begins while others are there, all that it writes counts.
    pub(super) fn new(waiting: Option<i32>, begins_among_others: bool) -> Self {
        Self { seen: begins_among_others.then(HashMap::new), waiting, ..Self::default() }
    }

    /// Notes what a look has found: whether the run writes although it is to pause. Between the look by which it is to pause and the
    /// moment at which it stops it may write yet, once for each pause. What is still to stop (`is_stopping`) goes on writing until the
    /// call ends that it is in, which may be one of 2 GiB.
    pub(super) fn note_defiance(&mut self, is_stopping: impl Fn(i32) -> bool) {
        let by_will = self.grown.iter().filter(|(pid, more)| *more > 0 && !is_stopping(*pid));
        let goes_on =
            !self.paused.is_empty() && by_will.map(|(_, more)| *more).fold(0, u64::saturating_add) >= MUCH;
        self.defied = if goes_on { self.defied.saturating_add(1) } else { 0 };
    }

    /// What the processes have written since the last look. What a parent has by collecting a child is not counted again.
    pub(super) fn more(&mut self, now: &[Writer]) -> More {
        let bytes_of = |writer: &Writer| match writer.written {
            Written::Bytes(bytes) => bytes,
            // As before, so that nothing counts twice when the process shows it again.
            Written::Hidden { .. } => {
                self.seen.as_ref().and_then(|seen| seen.get(&writer.pid)).map_or(0, |(_, known)| *known)
            }
        };
        let current: HashMap<i32, (i32, u64)> =
            now.iter().map(|writer| (writer.pid, (writer.parent, bytes_of(writer)))).collect();
        let count = |is_by_will| {
            let is_one =
                |writer: &&Writer| writer.written == Written::Hidden { is_at_work: true, is_by_will };
            u32::try_from(now.iter().filter(is_one).count()).unwrap_or(u32::MAX)
        };
        let (hidden, unseen) = (count(true), count(false));
        self.grown.clear();
        let Some(before) = self.seen.take() else {
            self.seen = Some(current);
            return More { bytes: 0, hidden, unseen, uncollected: 0 };
        };
        // What is gone, by the process that has collected it if one of the run has.
        let mut gone: HashMap<i32, u64> = HashMap::new();
        for (_, (parent, written)) in before.iter().filter(|(pid, _)| !current.contains_key(pid)) {
            let mut collector = *parent;
            for _ in 0..before.len() {
                match before.get(&collector) {
                    Some((above, _)) if !current.contains_key(&collector) => collector = *above,
                    _ => break,
                }
            }
            *gone.entry(collector).or_default() += written;
        }
        let (mut bytes, mut uncollected) = (0_u64, 0);
        for (pid, (_, written)) in &current {
            let at_first = if Some(*pid) == self.waiting { *written } else { 0 };
            let more = written.saturating_sub(before.get(pid).map_or(at_first, |(_, known)| *known));
            let collected = gone.remove(pid).unwrap_or(0);
            uncollected += u32::from(more < collected);
            let own = more.checked_sub(collected).unwrap_or(more);
            self.grown.push((*pid, own));
            bytes = bytes.saturating_add(own);
        }
        uncollected +=
            u32::try_from(gone.values().filter(|written| **written > 0).count()).unwrap_or(u32::MAX);
        self.seen = Some(current);
        More { bytes, hidden, unseen, uncollected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, written: u64) -> Writer {
        Writer { pid, parent, written: Written::Bytes(written) }
    }

    fn bytes(bytes: u64) -> More {
        More { bytes, hidden: 0, unseen: 0, uncollected: 0 }
    }

    #[test]
    fn what_a_parent_has_by_collecting_its_children_counts_once() {
        let mut writing = Writing::new(Some(1), true);
        // The first process has its figure from another run.
        assert_eq!(
            writing.more(&[process(1, 0, 10), process(2, 1, 100), process(3, 2, 1_000)]),
            bytes(1_100)
        );
        assert_eq!(
            writing.more(&[process(1, 0, 10), process(2, 1, 100), process(3, 2, 3_000)]),
            bytes(2_000)
        );
        // 3 wrote 500 more, 2 collected it and wrote 7, 1 collected that: and has another child.
        assert_eq!(writing.more(&[process(1, 0, 3_617), process(4, 1, 20)]), bytes(527));
        // No process collects 4 and 5, and what 1 writes itself counts all the same.
        let found = writing.more(&[process(1, 0, 3_620), process(5, 1, 30)]);
        assert_eq!(found, More { uncollected: 1, ..bytes(33) });
        assert_eq!(writing.more(&[process(1, 0, 3_620)]), More { uncollected: 1, ..bytes(0) });
    }

    #[test]
    fn an_orphan_that_another_process_collects_is_uncollected_if_it_has_written() {
        let mut writing = Writing::new(None, true);
        assert_eq!(writing.more(&[process(2, 1, 5), process(3, 1, 0), process(4, 1, 7)]), bytes(12));
        assert_eq!(writing.more(&[process(2, 1, 5)]), More { uncollected: 1, ..bytes(0) });
        assert_eq!(writing.more(&[process(2, 1, 6)]), bytes(1));
    }

    #[test]
    fn who_writes_on_defies_and_who_is_stopped_late_does_not() {
        let mut writing = Writing { paused: vec![1], ..Writing::new(None, true) };
        let mut written = 0;
        let mut at_look = |writing: &mut Writing, more, is_stopping| {
            written += more;
            writing.more(&[process(1, 0, written)]);
            writing.note_defiance(|_| is_stopping);
            writing.defied
        };
        for _ in 0..20 {
            assert_eq!(at_look(&mut writing, 100 * MUCH, false), 1);
            assert_eq!(at_look(&mut writing, 0, false), 0);
        }
        // It is in a call that writes more than the disk takes between two looks.
        assert_eq!([(); 20].map(|()| at_look(&mut writing, 100 * MUCH, true)), [0; 20]);
        assert_eq!([(); 3].map(|()| at_look(&mut writing, MUCH, false)), [1, 2, 3]);
        // It may write again.
        writing.paused.clear();
        assert_eq!(at_look(&mut writing, MUCH, false), 0);
    }

    #[test]
    fn what_was_written_before_others_came_does_not_count() {
        let mut writing = Writing::default();
        assert_eq!(writing.more(&[process(1, 0, 1_000)]), bytes(0));
        assert_eq!(writing.more(&[process(1, 0, 1_001)]), bytes(1));
        let hidden = |pid, is_at_work, is_by_will| Writer {
            written: Written::Hidden { is_at_work, is_by_will },
            ..process(pid, 1, 0)
        };
        let found = writing.more(&[
            process(1, 0, 1_001),
            hidden(2, true, true),
            hidden(3, false, true),
            hidden(4, true, false),
        ]);
        assert_eq!(found, More { hidden: 1, unseen: 1, ..bytes(0) });
        // What was hidden for a while does not count twice.
        let hides = |now| Writer { written: Written::Hidden { is_at_work: false, is_by_will: true }, ..now };
        assert_eq!(writing.more(&[hides(process(1, 0, 0))]), bytes(0));
        assert_eq!(writing.more(&[process(1, 0, 1_003)]), bytes(2));
    }
}
