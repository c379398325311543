//! Bytes of encoded strings, and tables that translate characters.

use super::budget::Budget;
use super::values::{as_int, invalid, one_text, split_kwargs, text_of};
use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, Value};
use std::collections::BTreeMap;

/// `str.encode(encoding, errors)`.
pub(super) fn encode(s: &str, args: &[Value]) -> Result<Value, Error> {
    let (name, highest) = encoding(args.first())?;
    let strict = args.get(1).is_none_or(|errors| text_of(errors) == Some("strict"));
    let Some(highest) = highest else { return Ok(Value::from_bytes(s.as_bytes().to_vec())) };
    let byte = |c: char| u8::try_from(u32::from(c)).ok().filter(|byte| *byte <= highest);
    if strict && s.chars().any(|c| byte(c).is_none()) {
        return Err(invalid(&format!("{name} cannot encode a character")));
    }
    let lossy = |c: char| match args.get(1).and_then(text_of) {
        Some("ignore") => Ok(byte(c)),
        None | Some("strict" | "replace") => Ok(Some(byte(c).unwrap_or(b'?'))),
        Some(other) => Err(invalid(&format!("unknown error handler \"{other}\""))),
    };
    let bytes = s.chars().map(lossy).collect::<Result<Vec<_>, Error>>()?;
    Ok(Value::from_bytes(bytes.into_iter().flatten().collect()))
}

/// The name of an encoding and its highest byte; `None` for UTF-8.
fn encoding(name: Option<&Value>) -> Result<(String, Option<u8>), Error> {
    let name =
        name.map_or(Some("utf-8"), text_of).ok_or_else(|| invalid("expected an encoding"))?;
    let plain: String =
        name.to_lowercase().chars().filter(|c| !matches!(c, '-' | '_' | ' ')).collect();
    let highest = match plain.as_str() {
        "utf8" | "u8" => None,
        "ascii" | "usascii" => Some(0x7F),
        "latin1" | "iso88591" | "l1" => Some(0xFF),
        _ => return Err(invalid(&format!("unknown encoding \"{name}\""))),
    };
    Ok((name.to_owned(), highest))
}

/// A method of bytes; `None` if there is no such method.
pub(super) fn method(bytes: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let content = bytes.as_bytes().unwrap_or_default();
    match name {
        "decode" => decode(content, args).map(Some),
        "hex" => {
            let () = from_args(args)?;
            let digits: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(Some(Value::from(digits)))
        }
        _ => Ok(None),
    }
}

fn decode(bytes: &[u8], args: &[Value]) -> Result<Value, Error> {
    let (name, highest) = encoding(split_kwargs(args)?.0.first())?;
    let problem = || invalid(&format!("{name} cannot decode a byte"));
    let Some(highest) = highest else {
        return std::str::from_utf8(bytes).map(Value::from).map_err(|_| problem());
    };
    match bytes.iter().all(|byte| *byte <= highest) {
        true => Ok(Value::from(bytes.iter().map(|byte| char::from(*byte)).collect::<String>())),
        false => Err(problem()),
    }
}

/// `str.translate(table)`: by number, characters become texts, other characters, or nothing.
pub(super) fn translate(budget: &Budget, s: &str, args: &[Value]) -> Result<Value, Error> {
    let (table,): (Value,) = from_args(args)?;
    let mut out = String::new();
    for c in s.chars() {
        let to = table.get_item(&Value::from(u32::from(c)))?;
        let number = as_int(&to).and_then(|x| u32::try_from(x).ok()).and_then(char::from_u32);
        match (text_of(&to), number) {
            (Some(text), _) => out.push_str(text),
            (_, Some(other)) => out.push(other),
            _ if to.is_undefined() => out.push(c),
            _ if to.is_none() => {}
            _ => return Err(invalid("translate: expected a character, a text or none")),
        }
        budget.make(4)?;
    }
    Ok(Value::from(out))
}

/// `str.maketrans`: a table for [`translate`].
pub(super) fn table(args: &[Value]) -> Result<Value, Error> {
    let code = |c: char| Value::from(u32::from(c));
    let mut table: BTreeMap<Value, Value> = BTreeMap::new();
    let [from, rest @ ..] = args else { return Err(invalid("maketrans needs a table")) };
    if rest.is_empty() && from.kind() == ValueKind::Map {
        for key in from.try_iter()? {
            let single = text_of(&key).map(|text| text.chars().collect::<Vec<_>>());
            let number = match single.as_deref() {
                Some([c]) => code(*c),
                Some(_) => return Err(invalid("maketrans: expected keys of one character")),
                None => key.clone(),
            };
            table.insert(number, from.get_item(&key)?);
        }
        return Ok(Value::from(table));
    }
    let (from, to) = (one_text(&args[..1])?, one_text(rest.get(..1).unwrap_or_default())?);
    if from.chars().count() != to.chars().count() {
        return Err(invalid("maketrans: expected two strings of equal length"));
    }
    table.extend(from.chars().zip(to.chars()).map(|(from, to)| (code(from), code(to))));
    let removed = rest.get(1).and_then(text_of).unwrap_or("");
    table.extend(removed.chars().map(|c| (code(c), Value::from(()))));
    Ok(Value::from(table))
}
