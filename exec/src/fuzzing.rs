//! What the fuzz targets see of reading packets (`fuzz/`); built for them alone.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::{Hello, Next, Order, Report, Request, Setup, decode, encode};

/// Reads `bytes` as each message between the service and its launcher.
///
/// # Panics
/// When a message that was read is not the same after it was written and read again.
pub fn packet(bytes: &[u8]) {
    message::<Order<Request>>(bytes);
    message::<Order<Next>>(bytes);
    message::<Setup>(bytes);
    message::<Hello>(bytes);
    message::<Report>(bytes);
}

fn message<M: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(message) = decode::<M>(bytes) else { return };
    let written = encode(&message).expect("what was read can be written");
    let again = decode::<M>(&written).expect("what was written can be read");
    assert_eq!(encode(&again).expect("the same"), written);
}
