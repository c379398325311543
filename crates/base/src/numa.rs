//! The number of NUMA nodes.

/// Nodes of this machine; one where the system does not say.
pub fn nodes() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/node/online");
    online.ok().and_then(|list| count(list.trim())).unwrap_or(1)
}

/// Numbers in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.split(',').map(range).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranges_are_counted() {
        for (list, expected) in
            [("0", Some(1)), ("0-1", Some(2)), ("0-3,8", Some(5)), ("", None), ("3-0", None)]
        {
            assert_eq!(count(list), expected, "{list}");
        }
        assert!(nodes() >= 1);
    }
}
