//! References within a schema, as JSON pointers in a fragment.

use serde_json::Value;

/// Returns a name as it is written in a JSON pointer.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns a JSON pointer with the escapes of a URI fragment.
pub(super) fn encoded(pointer: &str) -> String {
    let mut all = String::new();
    for byte in pointer.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => all.push(byte.into()),
            _ if b"/-._~!$&'()*+,;=:@?".contains(&byte) => all.push(byte.into()),
            _ => all.push_str(&format!("%{byte:02X}")),
        }
    }
    all
}

/// Resolves the escapes of a URI fragment.
pub(super) fn decoded(fragment: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), fragment.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Returns a place, `#` and the keys after it, as references have it.
pub(super) fn reference(place: &[String]) -> String {
    let path: String = place.iter().skip(1).flat_map(|key| ["/", key]).collect();
    format!("#{}", encoded(&path))
}

/// Whether a schema has a reference.
pub(super) fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => object.contains_key("$ref") || object.values().any(has_reference),
        Value::Array(list) => list.iter().any(has_reference),
        _ => false,
    }
}

/// Lets the references of a schema follow subschemas to their new places.
pub(super) fn follow(schema: &mut Value, renamed: &[(String, String)]) {
    rewrite(schema, true, &mut |pointer| moved(pointer, renamed));
}

/// Replaces each reference of a schema by what `with` returns for it. `keywords` says whether the
/// members of an object are keywords, not the names of subschemas.
pub(super) fn rewrite(schema: &mut Value, keywords: bool, with: &mut impl FnMut(&str) -> String) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(|value| rewrite(value, true, with)),
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                match (key.as_str(), value) {
                    // Values, in which a reference is a text like any other.
                    ("const" | "enum", _) if keywords => {}
                    ("$ref", Value::String(pointer)) if keywords => *pointer = with(pointer),
                    ("$defs" | "definitions" | "properties", value) if keywords => {
                        rewrite(value, false, with);
                    }
                    (_, value) => rewrite(value, true, with),
                }
            }
        }
        _ => {}
    }
}

fn moved(pointer: &str, renamed: &[(String, String)]) -> String {
    renamed.iter().fold(pointer.to_owned(), |pointer, (from, to)| {
        match pointer.strip_prefix(&**from) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{to}{rest}"),
            _ => pointer,
        }
    })
}
