//! Server-sent events: the data of each event of a stream of bytes.
//!
//! Source: the section "Server-sent events" of the HTML standard. Fields other than `data` are
//! ignored: streams are not resumed.

use super::message::MAX_MESSAGE_BYTES;

/// What reads a stream.
#[derive(Debug, Default)]
pub(super) struct SseReader {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    is_after_return: bool,
    has_begun: bool,
}

impl SseReader {
    /// Adds the events that end in `bytes` to `events`; `false` if an event is too large.
    pub(super) fn add(&mut self, bytes: &[u8], events: &mut Vec<Vec<u8>>) -> bool {
        for &byte in bytes {
            let is_after_return = std::mem::replace(&mut self.is_after_return, byte == b'\r');
            match byte {
                b'\n' if is_after_return => {}
                b'\n' | b'\r' => self.end_line(events),
                _ => self.line.push(byte),
            }
            let held = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
            if held > MAX_MESSAGE_BYTES {
                return false;
            }
        }
        true
    }

    fn end_line(&mut self, events: &mut Vec<Vec<u8>>) {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let mark = "\u{feff}".as_bytes();
        let line = if is_first { line.strip_prefix(mark).unwrap_or(&line) } else { &line };
        if line.is_empty() {
            events.extend(self.data.take());
            return;
        }
        let Some(value) = line.strip_prefix(b"data") else { return };
        let value = match value {
            [] => value,
            [b':', b' ', value @ ..] | [b':', value @ ..] => value,
            _ => return,
        };
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let (mut reader, mut events) = (SseReader::default(), Vec::new());
        assert!(chunks.iter().all(|chunk| reader.add(chunk, &mut events)));
        events.into_iter().map(|event| String::from_utf8(event).unwrap()).collect()
    }

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        let stream = "\u{feff}data: a\n\nevent: x\r\nid: 3\r\ndata:b\r\ndata:  c\r\n\r\n: note\r\r\
                      data\r\rdatax: d\n\ndata: é\ndata\n\ndata: unfinished";
        let expected = ["a", "b\n c", "", "é\n"];
        assert_eq!(read(&[stream.as_bytes()]), expected);
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), expected);
    }

    #[test]
    fn an_event_that_is_too_large_is_noticed() {
        let many_lines = "data: 0123456789\n".repeat(MAX_MESSAGE_BYTES / 10);
        let long_line = "x".repeat(MAX_MESSAGE_BYTES + 1);
        for stream in [many_lines, long_line] {
            assert!(!SseReader::default().add(stream.as_bytes(), &mut Vec::new()));
        }
    }
}
