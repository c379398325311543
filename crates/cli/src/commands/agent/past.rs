//! The user's requests in the log of a session, which another process may be writing.

use agent::Record;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Most bytes of a log that are looked at.
const MAX_BYTES: u64 = 64 << 20;
/// How a record of a request begins, and one that takes the last one back.
const REQUEST: &[u8] = b"{\"record\":\"request\"";
const REWIND: &[u8] = b"{\"record\":\"rewind\"";

/// The requests that are not taken back, oldest first. What cannot be read is left out.
pub(super) fn requests(path: &Path) -> Vec<String> {
    File::open(path).map_or_else(|_| Vec::new(), |file| requests_in(BufReader::new(file)))
}

fn requests_in(log: impl BufRead) -> Vec<String> {
    let mut log = log.take(MAX_BYTES);
    let (mut requests, mut line) = (Vec::new(), Vec::new());
    while matches!(log.read_until(b'\n', &mut line), Ok(1..)) {
        if line.starts_with(REQUEST) {
            if let Ok(Record::Request { text }) = serde_json::from_slice(&line) {
                requests.push(text);
            }
        } else if line.starts_with(REWIND) {
            requests.pop();
        }
        line.clear();
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_that_are_not_taken_back() {
        let request = |text: &str| Record::Request { text: text.to_owned() };
        let message = serde_json::json!({"role": "user", "content": "a message"});
        let records = [
            Record::Message { message, tokens: None },
            request("one"),
            request("two"),
            Record::Rewind { messages: 2 },
            request("three"),
        ];
        let lines = records.map(|record| serde_json::to_string(&record).unwrap() + "\n");
        let log = lines.concat();
        assert_eq!(requests_in(log.as_bytes()), ["one", "three"]);
        // A last line that is being written.
        assert_eq!(requests_in(&log.as_bytes()[..log.len() - 5]), ["one"]);
        assert_eq!(requests_in(&b"\xff\n{}\n{\"record\":\"request\"}\nx\n"[..]), [""; 0]);
    }
}
