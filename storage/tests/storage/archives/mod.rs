//! Archives from strangers: honest ones of every tool, hostile ones of every kind, and back to an archive.

mod builder;
mod charsets;
mod corpus;
mod extracting;
mod lies;
mod metadata;
mod mutations;
mod names;
mod packing;
mod shapes;
mod sharing;
mod taking;
mod tar_lies;
mod tars;
mod tools;
mod validator;
