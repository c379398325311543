//! Unique ids.

/// `prefix` and 24 hexadecimal digits, different at every call and in every process.
pub(crate) fn id(prefix: &str) -> String {
    api::unique_id(prefix, 24)
}

/// A seed of the sampler, different at every call.
pub(crate) fn seed() -> u64 {
    // As many bits as every JSON parser keeps.
    u64::from_str_radix(&api::unique_id("", 13), 16).unwrap_or_default()
}

/// `prefix` and 24 hexadecimal digits, which follow from the unique id `base` and `number`.
pub(crate) fn derived_id(prefix: &str, base: &str, number: usize) -> String {
    api::derived_id(prefix, base, number, 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_differ_and_have_one_length() {
        let ids: HashSet<String> = (0..1000).map(|_| id("chatcmpl-")).collect();
        assert_eq!(ids.len(), 1000);
        assert_eq!(derived_id("msg_", "a", 1).len(), "msg_".len() + 24);
        assert!(ids.iter().all(|id| id.len() == "chatcmpl-".len() + 24));
    }
}
