//! The promise to callers: paths, parameters, shapes, and what each operation means.

mod isolation;
mod life;
mod lines;
mod raw;
mod running;
mod skills;
mod transfer;
mod tree;
