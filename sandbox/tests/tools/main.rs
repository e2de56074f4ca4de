//! The tools and the stores, over real backends.

mod agreement;
mod cases;
mod hostile;

mod support;
