//! The promise to callers: paths, parameters, shapes, and what each operation means.

mod isolation;
mod life;
mod lines;
mod raw;
mod running;
mod sessions;
mod skills;
mod streams;
mod terminal;
mod transfer;
mod tree;
