//! The promise to callers: paths, parameters, shapes, and what each operation means.

mod encodings;
mod isolation;
mod lines;
mod patching;
mod raw;
mod running;
mod search;
mod skills;
mod transfer;
mod tree;
