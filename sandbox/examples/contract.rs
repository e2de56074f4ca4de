//! The contract of all backends, tried on one: `cargo run -p sandbox --example contract --features conformance`.
#![allow(clippy::print_stdout, missing_docs, reason = "an example speaks")]

use std::sync::Arc;

use async_trait::async_trait;
use sandbox::conformance::{Ability, Subject, Verdict, check, laws};
use sandbox::{MemSandbox, Sandbox};

/// Put your backend here.
struct Mine(MemSandbox);

#[async_trait]
impl Subject for Mine {
    fn abilities(&self) -> &[Ability] {
        &[Ability::Changes, Ability::Closing, Ability::Versions, Ability::Walls]
    }

    async fn sandbox(&self) -> Arc<dyn Sandbox> {
        Arc::new(self.0.clone())
    }

    async fn another(&self) -> Arc<dyn Sandbox> {
        Arc::new(MemSandbox::new())
    }
}

#[tokio::main]
async fn main() {
    let subject: Arc<dyn Subject> = Arc::new(Mine(MemSandbox::new()));
    let (mut held, mut skipped) = (0, 0);
    for law in laws() {
        match check(&subject, law).await {
            Verdict::Holds => held += 1,
            Verdict::Skipped(_) => skipped += 1,
        }
    }
    println!("{held} laws hold, {skipped} were skipped");
}
