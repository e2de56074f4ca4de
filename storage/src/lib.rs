//! The bytes on disk.
