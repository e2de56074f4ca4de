//! Running one command under isolation.
