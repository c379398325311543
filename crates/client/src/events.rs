//! An incremental parser of server-sent events, following the HTML standard: lines end with LF, CR
//! or CRLF, and comments and unknown fields are ignored.
//!
//! Invariant: the parser holds at most one event, of bounded size.

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSentEvent {
    /// Name of the event; empty if it has none.
    pub name: String,
    /// The lines of data, with LF between them.
    pub data: String,
}

/// An event or a line exceeds the maximum size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {limit} bytes")]
pub struct EventTooLong {
    /// The maximum size in bytes.
    pub limit: usize,
}

/// Parses bytes into server-sent events.
#[derive(Clone, Debug)]
pub struct EventParser {
    /// Maximum size of one line or event in bytes.
    max_bytes: usize,
    line: Vec<u8>,
    /// Whether the last byte was CR, so that an LF next belongs to it.
    after_cr: bool,
    not_first: bool,
    event: ServerSentEvent,
    has_data: bool,
}

impl EventParser {
    /// A parser of events of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            line: Vec::new(),
            after_cr: false,
            not_first: false,
            event: ServerSentEvent::default(),
            has_data: false,
        }
    }

    /// Adds bytes and returns the events that they complete.
    ///
    /// # Errors
    /// If an event is longer than the maximum.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<ServerSentEvent>, EventTooLong> {
        let (mut rest, mut events) = (bytes, Vec::new());
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            self.line.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
            if self.line.len() + self.event.data.len() > self.max_bytes {
                return Err(EventTooLong { limit: self.max_bytes });
            }
            let Some(end) = end else { break };
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            events.extend(self.end_line());
        }
        Ok(events)
    }

    /// Ends a line. An empty line ends an event, which is returned.
    fn end_line(&mut self) -> Option<ServerSentEvent> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let is_first = !std::mem::replace(&mut self.not_first, true);
        let line = if is_first { text.trim_start_matches('\u{feff}') } else { &text };
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            // An event without data is ignored.
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        self.field(field, value.strip_prefix(' ').unwrap_or(value));
        None
    }

    fn field(&mut self, field: &str, value: &str) {
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            // Comments have an empty name; ids and retry times do not matter here.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of `text`, whatever the pieces that it comes in.
    fn check(text: &str, expected: &[(&str, &str)]) {
        for size in 1..=text.len().max(1) {
            let (mut parser, mut found) = (EventParser::new(1 << 20), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                found.extend(parser.push(piece).unwrap());
            }
            let found: Vec<_> = found.iter().map(|e| (e.name.as_str(), e.data.as_str())).collect();
            assert_eq!(found, expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn events_survive_any_cut_and_any_line_end() {
        check("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check("data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check("data: \u{e9}\u{1F600}\n\n", &[("", "\u{e9}\u{1F600}")]);
    }

    #[test]
    fn comments_and_other_fields_are_passed_over() {
        check(": keep-alive\n\nid: 7\nretry: 5\ndata: a\nwhat\n\n", &[("", "a")]);
        check("\u{feff}data: a\n\n", &[("", "a")]);
    }

    #[test]
    fn data_of_several_lines_is_one_event() {
        check(
            "event: error\ndata: {\ndata:}\n\ndata: [DONE]\n\n",
            &[("error", "{\n}"), ("", "[DONE]")],
        );
        check("data:\n\n", &[("", "")]);
    }

    #[test]
    fn an_incomplete_event_is_ignored() {
        check("data: a\n\ndata: b\n", &[("", "a")]);
        check("event: error\n\n", &[]);
    }

    #[test]
    fn the_limit_is_of_lines_and_of_events() {
        let push = |text: &str| EventParser::new(10).push(text.as_bytes());
        assert_eq!(push("data: 1234\n\n").unwrap()[0].data, "1234");
        assert_eq!(push("data: 12345\n"), Err(EventTooLong { limit: 10 }));
        assert_eq!(push("data:1234\ndata:5678\n\n"), Err(EventTooLong { limit: 10 }));
        assert_eq!(push(&"\n".repeat(99)), Ok(Vec::new()));
    }

    #[test]
    fn what_never_ends_is_refused() {
        let mut parser = EventParser::new(1 << 20);
        let piece = vec![b'x'; 1000];
        let refused = (0..2000).any(|_| parser.push(&piece).is_err());
        assert!(refused);
    }
}
