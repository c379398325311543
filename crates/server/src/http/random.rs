//! Unique ids.

/// `prefix` and 24 hexadecimal digits, different at every call and in every process.
pub(crate) fn id(prefix: &str) -> String {
    api::unique_id(prefix, 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_differ_and_have_one_length() {
        let ids: HashSet<String> = (0..1000).map(|_| id("chatcmpl-")).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == "chatcmpl-".len() + 24));
    }
}
