//! Packets between the service and its launcher: refused, or read, written and read again as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| exec::fuzzing::packet(bytes));
