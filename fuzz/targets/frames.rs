//! Frames of lent machines, as the service and as the runner reads them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbox::wire::{Founding, Frame, Register, Request, Response, live};

fuzz_target!(|text: &str| {
    let Ok(frame) = Frame::parse(text) else { return };
    let _ = Register::read(&frame);
    let _ = Request::read(&frame);
    let _ = Response::read(&frame);
    let _ = live::Event::read(&frame);
    let _ = Founding::read(&frame);
});
