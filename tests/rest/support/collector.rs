//! [`Collector`]: an OTLP/HTTP receiver that keeps what it gets, read with the types that OpenTelemetry publishes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// Longest wait for spans. Only a service that sends none ever reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A collector's answer to a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// It took all.
    Taken,
    /// It took all but so many.
    Rejected(i64),
    /// This status, and a redirect that the service must not follow.
    Status(u16, SocketAddr),
    /// Nothing, ever.
    Silence,
}

/// A request as it came.
struct Received {
    head: String,
    body: Vec<u8>,
}

#[derive(Default)]
struct Kept {
    received: Mutex<Vec<Received>>,
    more: Condvar,
}

/// A receiver on a free port of 127.0.0.1.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    kept: Arc<Kept>,
}

/// A span, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) span: Span,
    /// Attributes of the service that sent it.
    pub(crate) resource: Vec<KeyValue>,
}

impl Collector {
    pub(crate) fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, kept) = (Arc::new(Mutex::new(answer)), Arc::new(Kept::default()));
        let (answers, keeps) = (Arc::clone(&answer), Arc::clone(&kept));
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answers, keeps) = (Arc::clone(&answers), Arc::clone(&keeps));
                std::thread::spawn(move || serve(stream.unwrap(), &answers, &keeps));
            }
        });
        Self { address, answer, kept }
    }

    /// The configuration of a service that sends to it.
    pub(crate) fn config(&self) -> String {
        format!("[telemetry]\notlp_endpoint = \"http://{}\"\n", self.address)
    }

    /// Answers so from now on.
    pub(crate) fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Everything that came so far, byte for byte.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let received = self.kept.received.lock().unwrap();
        received.iter().flat_map(|one| [one.head.as_bytes(), &one.body].concat()).collect()
    }

    /// All spans that came so far.
    pub(crate) fn spans(&self) -> Vec<Told> {
        self.kept.received.lock().unwrap().iter().flat_map(Received::spans).collect()
    }

    /// Waits until a span is there that `wanted` is true of.
    pub(crate) fn wait(&self, wanted: impl Fn(&Told) -> bool) -> Told {
        let find =
            |received: &Vec<Received>| received.iter().flat_map(Received::spans).find(|told| wanted(told));
        let received = self.kept.received.lock().unwrap();
        let (received, waited) = self
            .kept
            .more
            .wait_timeout_while(received, PATIENCE, |received| find(received).is_none())
            .unwrap();
        assert!(!waited.timed_out(), "no such span in {} batches", received.len());
        find(&received).unwrap()
    }

    /// Waits for the span of the request to which its sender gave this id.
    pub(crate) fn wait_for(&self, id: &str) -> Told {
        self.wait(|told| told.text("filesecbox.caller_request_id").as_deref() == Some(id))
    }
}

impl Received {
    fn spans(&self) -> Vec<Told> {
        let request = ExportTraceServiceRequest::decode(self.body.as_slice()).unwrap();
        let mut found = Vec::new();
        for of_resource in request.resource_spans {
            let resource = of_resource.resource.unwrap().attributes;
            for of_scope in of_resource.scope_spans {
                assert_eq!(of_scope.scope.unwrap().name, "filesecbox");
                found
                    .extend(of_scope.spans.into_iter().map(|span| Told { span, resource: resource.clone() }));
            }
        }
        found
    }
}

impl Told {
    fn value(&self, key: &str) -> Option<Value> {
        let mut found = self.span.attributes.iter().filter(|attribute| attribute.key == key);
        let attribute = found.next()?;
        assert!(found.next().is_none(), "`{key}` is there twice");
        attribute.value.clone()?.value
    }

    pub(crate) fn text(&self, key: &str) -> Option<String> {
        match self.value(key)? {
            Value::StringValue(text) => Some(text),
            other => panic!("`{key}` is {other:?}"),
        }
    }

    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        match self.value(key)? {
            Value::IntValue(number) => Some(number),
            other => panic!("`{key}` is {other:?}"),
        }
    }

    /// An attribute of the service that sent it.
    pub(crate) fn of_service(&self, key: &str) -> Option<String> {
        let found = self.resource.iter().find(|attribute| attribute.key == key)?;
        match &found.value {
            Some(AnyValue { value: Some(Value::StringValue(text)) }) => Some(text.clone()),
            other => panic!("`{key}` is {other:?}"),
        }
    }
}

/// Takes requests of one connection until it ends.
fn serve(stream: TcpStream, answer: &Mutex<Answer>, kept: &Kept) {
    let mut out = stream.try_clone().unwrap();
    let mut from = BufReader::new(stream);
    while let Some(received) = receive(&mut from) {
        let answer = *answer.lock().unwrap();
        kept.received.lock().unwrap().push(received);
        kept.more.notify_all();
        let reply = |status: &str, body: &[u8]| {
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
            [head.as_bytes(), body].concat()
        };
        let bytes = match answer {
            Answer::Taken => reply("200 OK", &ExportTraceServiceResponse::default().encode_to_vec()),
            Answer::Rejected(rejected_spans) => {
                let error_message = "too many".to_owned();
                let partial = ExportTracePartialSuccess { rejected_spans, error_message };
                reply(
                    "200 OK",
                    &ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec(),
                )
            }
            Answer::Status(status, elsewhere) => {
                reply(&format!("{status} So\r\nlocation: http://{elsewhere}/v1/traces"), b"no")
            }
            Answer::Silence => continue,
        };
        if out.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Reads one request; `None` when there is no more.
fn receive(from: &mut impl BufRead) -> Option<Received> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_ascii_lowercase();
    let length =
        length.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().unwrap();
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some(Received { head, body })
}
