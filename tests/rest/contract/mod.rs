//! The promise to callers: paths, parameters, shapes, and what each operation means.

mod difference;
mod encodings;
mod events;
mod isolation;
mod life;
mod lines;
mod patching;
mod raw;
mod running;
mod sandboxes;
mod search;
mod sessions;
mod skills;
mod snapshots;
mod streams;
mod terminal;
mod transfer;
mod tree;
