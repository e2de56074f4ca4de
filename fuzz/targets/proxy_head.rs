//! Request heads of the proxy: refused, or written anew so that every reader understands the same request.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));

fuzz_target!(|bytes: &[u8]| {
    RUNTIME.block_on(egress::fuzzing::request(bytes));
});
