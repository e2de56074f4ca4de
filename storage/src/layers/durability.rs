//! [`Durability`]: when a change counts as done.

/// When a change counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// After it survives a loss of power: file and directory are synchronised first.
    #[default]
    Strict,
    /// After the kernel has it: it survives the service's death, not the machine's. What is published, and so may
    /// take the place of what all users rely on, is whole on the disk before it does, or not there.
    Relaxed,
    /// As `Relaxed`, and a publication does not wait either: for stores that are not needed after a loss of power, such as
    /// those of tests.
    Never,
}
