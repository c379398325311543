//! Remembered turns as records that outlive the process.
//!
//! A record is a checksum, the model, the number of the turn with whose tokens the prompt begins,
//! the digest of the conversation before, the tokens, and the calls and the text as JSON; numbers
//! are little-endian. A record that is not as it should be is none, and one of another model is
//! left alone.

use crate::message::ToolCall;
use crate::replay_turn::{Digested, ReplayTurn, Weight};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Version of the encoding.
const VERSION: u8 = 1;
/// Bytes of the checksum.
const CHECK: usize = 16;

/// Digest of what decides the meaning of a turn's tokens: the model, its vocabulary and its
/// template.
pub(crate) type ModelDigest = [u8; 16];

/// What a record holds.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// The turn without its parent.
    pub turn: ReplayTurn,
    /// The number of the parent.
    pub parent: Option<u64>,
}

/// Why a record is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unused {
    /// It is damaged, or of an unknown form.
    Damaged,
    /// It belongs to another model.
    Foreign,
}

/// The record of `turn`.
pub(crate) fn encode(turn: &ReplayTurn, parent: Option<u64>, model: ModelDigest) -> Vec<u8> {
    let mut bytes = vec![0; CHECK];
    bytes.push(VERSION);
    bytes.extend(model);
    bytes.extend(parent.unwrap_or(0).to_le_bytes());
    bytes.extend(turn.before);
    for tokens in [&turn.prompt, &turn.sampled] {
        bytes.extend((tokens.len() as u64).to_le_bytes());
        bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
    }
    let calls: Vec<Value> = turn.calls.iter().map(|call| json!(call.key())).collect();
    bytes.extend(json!({ "calls": calls, "content": turn.content }).to_string().into_bytes());
    let check = checksum(&bytes[CHECK..]);
    bytes[..CHECK].copy_from_slice(&check);
    bytes
}

/// The turn of a record.
pub(crate) fn decode(bytes: &[u8], model: ModelDigest) -> Result<Decoded, Unused> {
    let content = bytes.get(CHECK..).ok_or(Unused::Damaged)?;
    if bytes[..CHECK] != checksum(content) {
        return Err(Unused::Damaged);
    }
    match content {
        [VERSION, of_model @ ..] if of_model.get(..model.len()) != Some(&model) => {
            Err(Unused::Foreign)
        }
        [VERSION, of_model @ ..] => parse(&of_model[model.len()..]).ok_or(Unused::Damaged),
        _ => Err(Unused::Damaged),
    }
}

fn parse(mut bytes: &[u8]) -> Option<Decoded> {
    let parent = number(&mut bytes)?;
    let before: Digested = *bytes.split_off(..size_of::<Digested>())?.first_chunk()?;
    let (prompt, sampled) = (tokens(&mut bytes)?, tokens(&mut bytes)?);
    let rest: Value = serde_json::from_slice(bytes).ok()?;
    let calls = rest["calls"].as_array()?.iter().map(call).collect::<Option<_>>()?;
    let content = rest["content"].as_str()?.to_owned();
    let (parent_turn, weight, record) = (None, Weight::default(), None);
    let turn =
        ReplayTurn { calls, content, before, parent: parent_turn, prompt, sampled, weight, record };
    Some(Decoded { turn, parent: (parent > 0).then_some(parent) })
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?))
}

fn tokens(bytes: &mut &[u8]) -> Option<Vec<u32>> {
    let count = usize::try_from(number(bytes)?).ok()?;
    let tokens = bytes.split_off(..count.checked_mul(size_of::<u32>())?)?;
    let (tokens, _) = tokens.as_chunks();
    Some(tokens.iter().map(|token| u32::from_le_bytes(*token)).collect())
}

/// A call from its id, name and arguments.
fn call(parts: &Value) -> Option<ToolCall> {
    let [id, name, arguments] = parts.as_array()?.as_slice() else { return None };
    let (id, name) = (id.as_str()?.to_owned(), name.as_str()?.to_owned());
    Some(ToolCall { id: Some(id), name, arguments: arguments.clone(), ..ToolCall::default() })
}

fn checksum(bytes: &[u8]) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    check.copy_from_slice(&Sha256::digest(bytes)[..CHECK]);
    check
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn() -> ReplayTurn {
        let call = json!({"id": "x", "function": {"name": "f", "arguments": {"a": [1]}}});
        ReplayTurn {
            calls: vec![call.into()],
            content: "é".into(),
            before: [7; 32],
            parent: None,
            prompt: vec![1, u32::MAX],
            sampled: Vec::new(),
            weight: Weight::default(),
            record: None,
        }
    }

    #[test]
    fn turns_are_read_back() {
        for parent in [None, Some(3)] {
            let Decoded { turn: read, parent: found } =
                decode(&encode(&turn(), parent, [1; 16]), [1; 16]).unwrap();
            assert_eq!(found, parent);
            assert_eq!(read.calls[0].key(), turn().calls[0].key());
            assert_eq!((&*read.content, read.before), ("é", [7; 32]));
            assert_eq!((&read.prompt[..], &read.sampled[..]), (&[1, u32::MAX][..], &[][..]));
        }
    }

    #[test]
    fn cut_or_changed_at_any_byte_a_record_is_none() {
        let bytes = encode(&turn(), Some(3), [1; 16]);
        for at in 0..bytes.len() {
            assert_eq!(decode(&bytes[..at], [1; 16]).unwrap_err(), Unused::Damaged, "{at}");
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(decode(&changed, [1; 16]).unwrap_err(), Unused::Damaged, "{at}");
            // A sound checksum over anything.
            let mut cut = bytes[..at.max(CHECK)].to_vec();
            let check = checksum(&cut[CHECK..]);
            cut[..CHECK].copy_from_slice(&check);
            assert!(decode(&cut, [1; 16]).is_err(), "{at}");
        }
        assert_eq!(decode(&bytes, [2; 16]).unwrap_err(), Unused::Foreign);
    }
}
