//! [`Random`]: choices that a seed repeats.

use std::io::Write;

/// A generator of choices (xorshift64*, Vigna 2016): not for secrets.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`, which is above 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from((self.next() >> 33) % u64::try_from(bound).unwrap()).unwrap()
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, unless there is none.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.below(items.len())) }
    }
}

/// The seed of this run, told on standard error so that a failure can be repeated.
pub(crate) fn seed(test: &str) -> u64 {
    let given = std::env::var("FILESECBOX_LOAD_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()) ^ u64::from(std::process::id())
    });
    tell(&format!("{test}: FILESECBOX_LOAD_SEED={seed}"));
    seed
}

/// A number from the environment.
pub(crate) fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Prints a line that the test harness does not hold back.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
