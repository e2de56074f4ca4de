//! [`Script`]: a resolver whose answers are written down, one after the other.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use egress::Resolve;
use parking_lot::Mutex;

/// Its answers. The last answer of a name is given again and again.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    answers: HashMap<String, Vec<Vec<IpAddr>>>,
    asked: Vec<String>,
    delay: Duration,
}

impl Script {
    pub(crate) fn new(answers: &[(&str, &[&[&str]])]) -> Self {
        let script = Self::default();
        for (name, answers) in answers {
            let one = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
            script.0.lock().answers.insert((*name).to_owned(), answers.iter().map(one).collect());
        }
        script
    }

    /// The same, each answer only after `delay`.
    pub(crate) fn slow(self, delay: Duration) -> Self {
        self.0.lock().delay = delay;
        self
    }

    /// Every name that was asked for, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.lock().asked.clone()
    }
}

impl Resolve for Script {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let delay = self.0.lock().delay;
        std::thread::sleep(delay);
        let mut inner = self.0.lock();
        inner.asked.push(name.to_owned());
        let answers = inner.answers.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() })
    }
}
