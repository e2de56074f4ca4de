//! [`Context`]: which trace a span belongs to. Only spans that are sent have one.
//!
//! It goes with the task that answers a request, so that no operation has to pass it on.

/// Bytes of a `traceparent` of version 00: `00-` 32 digits `-` 16 digits `-` 2 digits.
const TRACEPARENT_BYTES: usize = 55;
/// The flag of a trace that is to be kept.
const SAMPLED: u8 = 1;

tokio::task_local! {
    static CURRENT: Option<Context>;
}

/// The place of a span in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
}

/// The trace that a caller's request belongs to, in the caller's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    trace: [u8; 16],
    span: [u8; 8],
    is_sampled: bool,
}

impl Context {
    /// The context of a request with this `traceparent`; `None` when it has no span.
    ///
    /// A caller's decision holds; without one, or with one that is malformed, `ratio` of all requests have spans.
    pub(super) fn of_request(traceparent: Option<&str>, ratio: f64) -> Option<Self> {
        match traceparent.and_then(Sent::parse) {
            Some(sent) if sent.is_sampled => {
                Some(Self { trace: sent.trace, span: fresh()?, parent: Some(sent.span) })
            }
            Some(_) => None,
            None => {
                // 53 bits are what a double tells apart.
                #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
                let part = (u64::from_be_bytes(random()?) >> 11) as f64 / (1_u64 << 53) as f64;
                (part < ratio).then_some(())?;
                Some(Self { trace: fresh()?, span: fresh()?, parent: None })
            }
        }
    }

    /// The context of a part of this span.
    #[must_use]
    pub fn child(&self) -> Option<Self> {
        Some(Self { trace: self.trace, span: fresh()?, parent: Some(self.span) })
    }

    /// The context of the request that this task answers.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|current| *current).ok().flatten()
    }
}

/// Lets `answering` know the context of its request.
pub async fn within<T>(context: Option<Context>, answering: impl Future<Output = T>) -> T {
    CURRENT.scope(context, answering).await
}

impl Sent {
    /// Reads a `traceparent`. A later version than 00 may have more behind a further `-`.
    fn parse(text: &str) -> Option<Self> {
        let (known, more) = text.as_bytes().split_at_checked(TRACEPARENT_BYTES)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let version = digits::<1>(parts.next()?)?;
        let (trace, span) = (digits(parts.next()?)?, digits(parts.next()?)?);
        let [flags] = digits::<1>(parts.next()?)?;
        let ends_well = match version {
            [0] => more.is_empty(),
            [0xff] => false,
            _ => more.first().is_none_or(|byte| *byte == b'-'),
        };
        let is_sane = ends_well && parts.next().is_none() && trace != [0; 16] && span != [0; 8];
        is_sane.then_some(Self { trace, span, is_sampled: flags & SAMPLED != 0 })
    }
}

/// Reads exactly `N` bytes as two lower-case digits each.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let mut bytes = [0; N];
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

/// Random bytes; `None` when the kernel has none, and then there is no span.
fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// An id that nothing else has; one of zeros alone means none.
fn fresh<const N: usize>() -> Option<[u8; N]> {
    random().filter(|id| *id != [0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_traceparent_is_taken_as_the_standard_has_it() {
        for (text, is_sampled) in [
            (format!("00-{TRACE}-{SPAN}-01"), true),
            (format!("00-{TRACE}-{SPAN}-00"), false),
            (format!("00-{TRACE}-{SPAN}-03"), true),
            (format!("cc-{TRACE}-{SPAN}-01"), true),
            (format!("cc-{TRACE}-{SPAN}-01-what-comes-later"), true),
        ] {
            let sent = Sent::parse(&text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((sent.trace[0], sent.trace[15], sent.span[1]), (0x4b, 0x36, 0xf0));
            assert_eq!(sent.is_sampled, is_sampled, "{text}");
        }
    }

    #[test]
    fn a_malformed_traceparent_is_none() {
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("cc-{TRACE}-{SPAN}-01.more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0x-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}{SPAN}-01--"),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("00-{SPAN}-{TRACE}-01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-é"),
        ] {
            assert_eq!(Sent::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_callers_decision_holds_and_else_the_ratio() {
        let parent = |flags: &str| format!("00-{TRACE}-{SPAN}-{flags}");
        let kept = Context::of_request(Some(&parent("01")), 0.0).unwrap();
        assert_eq!(kept.parent, Some([0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]));
        assert_eq!(Context::of_request(Some(&parent("00")), 1.0), None);
        for _ in 0..100 {
            assert_eq!(Context::of_request(None, 0.0), None);
            assert!(
                Context::of_request(Some("nonsense"), 1.0).is_some_and(|context| context.parent.is_none())
            );
        }
        let some = (0..2000).filter(|_| Context::of_request(None, 0.25).is_some()).count();
        // Twelve standard deviations to each side.
        assert!((260..740).contains(&some), "{some}");
    }

    #[test]
    fn a_child_stays_in_the_trace() {
        let request = Context::of_request(None, 1.0).unwrap();
        let child = request.child().unwrap();
        assert_eq!((child.trace, child.parent), (request.trace, Some(request.span)));
        assert_ne!(child.span, request.span);
    }
}
