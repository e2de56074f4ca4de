//! The promise to callers: paths, parameters, shapes, and what each operation means.

mod encodings;
mod events;
mod isolation;
mod life;
mod lines;
mod patching;
mod raw;
mod running;
mod search;
mod sessions;
mod skills;
mod streams;
mod terminal;
mod transfer;
mod tree;
