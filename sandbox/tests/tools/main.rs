//! The tools and the stores, over real backends.

mod cases;

mod support;
