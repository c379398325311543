//! The body of a response in chunks: one for each event of a stream.
//!
//! Invariant: chunks are the data that a client of server-sent events, or of lines of JSON, gets;
//! comments and the end mark `[DONE]` are no chunks.

use axum::http::{HeaderMap, header};

/// The data that ends a stream of OpenAI's protocols.
const DONE: &[u8] = b"[DONE]";

/// How the events of a body are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// One line each.
    Lines,
}

impl Framing {
    /// The framing of a response with these headers; `None` for a body that is no stream.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        match kind.split(';').next()?.trim() {
            "text/event-stream" => Some(Self::Events),
            "application/x-ndjson" => Some(Self::Lines),
            _ => None,
        }
    }
}

/// Cuts the body of a stream into chunks.
#[derive(Debug)]
pub(crate) struct ChunkReader {
    framing: Framing,
    /// The line that has begun.
    line: Vec<u8>,
    /// The data of the event that has begun.
    data: Option<Vec<u8>>,
}

impl ChunkReader {
    pub fn new(framing: Framing) -> Self {
        Self { framing, line: Vec::new(), data: None }
    }

    /// The chunks that end in `bytes`, which continue the body.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                chunks.extend(self.end_line());
            }
        }
        chunks
    }

    /// The chunk of a last line without a line end. An event without an empty line after it is not
    /// whole, and left out.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        (self.framing == Framing::Lines).then(|| self.end_line()).flatten()
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let mut line = std::mem::take(&mut self.line);
        while line.last().is_some_and(|byte| b"\r\n".contains(byte)) {
            line.pop();
        }
        if self.framing == Framing::Lines {
            return Some(line).filter(|line| !line.is_empty());
        }
        if line.is_empty() {
            return self.data.take().filter(|data| data != DONE);
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            let data = data.strip_prefix(b" ").unwrap_or(data);
            match &mut self.data {
                None => self.data = Some(data.to_vec()),
                Some(before) => {
                    before.push(b'\n');
                    before.extend_from_slice(data);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chunks of `body`, whatever pieces it comes in.
    fn check(framing: Framing, body: &str, expected: &[&str]) {
        for size in 1..=body.len() {
            let mut reader = ChunkReader::new(framing);
            let pieces = body.as_bytes().chunks(size);
            let mut chunks: Vec<_> = pieces.flat_map(|piece| reader.push(piece)).collect();
            chunks.extend(reader.finish());
            assert_eq!(chunks, expected.iter().map(|it| it.as_bytes()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_event_is_its_data() {
        let body = "event: a\ndata: {\"b\": 1}\n\n: comment\ndata: x\ndata:y\n\ndata: [DONE]\n\n";
        check(Framing::Events, body, &["{\"b\": 1}", "x\ny"]);
        check(Framing::Events, "data: a\r\n\r\n\n\ndata: cut off", &["a"]);
    }

    #[test]
    fn a_line_is_a_chunk() {
        check(Framing::Lines, "{\"a\": 1}\n\n{\"b\": 2}", &["{\"a\": 1}", "{\"b\": 2}"]);
    }
}
