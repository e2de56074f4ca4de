//! The promise to callers: paths, parameters, shapes, and what each operation means.

mod archive;
mod difference;
mod encodings;
mod events;
mod intake;
mod isolation;
mod life;
mod lines;
mod links;
mod patching;
mod ports;
mod raw;
mod running;
mod sandboxes;
mod search;
mod sessions;
mod skill_places;
mod skills;
mod snapshots;
mod sockets;
mod streams;
mod terminal;
mod transfer;
mod tree;
mod users;
mod versions;
