//! Archives from strangers: honest ones of every tool, hostile ones of every kind, and back to an archive.

mod builder;
mod charsets;
mod lies;
mod mutations;
mod names;
mod packing;
mod shapes;
mod taking;
