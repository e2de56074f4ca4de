//! The filesecbox service.
fn main() {}
