//! What the check of a receipt has found.

use api::{Receipt, ReceiptDifference};
use engine::trace::TraceSettings;
use serde_json::{Value, json};

/// How a check ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerdictKind {
    /// All that was checked is as in the receipt.
    Same,
    /// Something differs.
    Differs,
    /// It cannot be checked here.
    Unchecked,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The public key of a right signature.
    signed_by: Option<String>,
    /// Whether there is no signature.
    unsigned: bool,
    /// What differs.
    differences: Vec<ReceiptDifference>,
    /// Tokens of the answer that was computed again, if one was.
    pub computed: Option<usize>,
    /// Why the rest cannot be checked.
    pub reason: Option<String>,
}

impl Verdict {
    /// Adds what differs.
    pub fn add(&mut self, differences: Vec<ReceiptDifference>) {
        self.differences.extend(differences);
    }

    fn differ(&mut self, part: &str, receipt: &str, found: &str) {
        let [part, receipt, found] = [part, receipt, found].map(str::to_owned);
        self.differences.push(ReceiptDifference { part, receipt, found });
    }

    /// Checks the signature, which must be of the key `expected`, if there is one.
    pub fn check_signature(&mut self, receipt: &Receipt, expected: Option<&str>) {
        match receipt.check_signature() {
            Ok(found) => {
                let key = found.unwrap_or("none");
                if let Some(expected) = expected.filter(|expected| *expected != key) {
                    self.differ("key", key, expected);
                }
                self.signed_by = found.map(str::to_owned);
                self.unsigned = found.is_none();
            }
            Err(problem) => self.differ("signature", "a signature", &problem),
        }
    }

    /// Compares the digest of the checkpoint, unless those of both are of different versions.
    pub fn check_checkpoint(&mut self, settings: &TraceSettings, found: &str) {
        let here = TraceSettings { checkpoint: found.to_owned(), ..settings.clone() };
        if let Some((part, receipt, found)) = settings.difference(&here) {
            self.differ(part, &receipt, &found);
        }
    }

    /// How the check ends.
    pub fn kind(&self) -> VerdictKind {
        match (self.differences.is_empty(), &self.reason) {
            (false, _) => VerdictKind::Differs,
            (true, Some(_)) => VerdictKind::Unchecked,
            (true, None) => VerdictKind::Same,
        }
    }

    /// The verdict as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.signed_by.iter().map(|key| format!("signed by {key}")));
        lines.extend(self.unsigned.then(|| "not signed".to_owned()));
        lines.extend(self.differences.iter().map(|ReceiptDifference { part, receipt, found }| {
            format!("{part} differs: {receipt} in the receipt, {found} here")
        }));
        lines.extend(self.reason.iter().map(|reason| format!("cannot be checked here: {reason}")));
        if self.kind() == VerdictKind::Same {
            lines.push(match self.computed {
                Some(tokens) => format!(
                    "computed again: {tokens} tokens and the logits that they were chosen from are \
                     the same to the bit"
                ),
                None => "digests are those of the receipt; --prompt-ids or --request computes the \
                         answer again"
                    .to_owned(),
            });
        }
        lines
    }

    /// The verdict as JSON.
    pub fn to_json(&self) -> Value {
        let difference = |ReceiptDifference { part, receipt, found }: &ReceiptDifference| json!({ "part": part, "receipt": receipt, "found": found });
        json!({
            "verdict": match self.kind() {
                VerdictKind::Same => "same",
                VerdictKind::Differs => "differs",
                VerdictKind::Unchecked => "unchecked",
            },
            "signed_by": self.signed_by,
            "computed_tokens": self.computed,
            "differences": self.differences.iter().map(difference).collect::<Vec<_>>(),
            "reason": self.reason,
        })
    }
}
