//! The names of blocks that were evicted, to say why they are not found.

use base::Name;

/// Fewest and most names of a pool: at most 1 MiB.
const MIN_NAMES: usize = 1 << 10;
const MAX_NAMES: usize = 1 << 16;

/// Names of one row.
const ROW: usize = 4;

/// Names of evicted blocks, in rows by their bits. In a full row a name replaces the oldest: the
/// memory is bounded, and nothing is allocated later.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvictedNames(Box<[[Name; ROW]]>);

impl EvictedNames {
    /// A memory for a pool of `blocks` blocks.
    pub fn new(blocks: usize) -> Self {
        let names = (4 * blocks).next_power_of_two().clamp(MIN_NAMES, MAX_NAMES);
        Self(vec![[Name::default(); ROW]; names / ROW].into())
    }

    /// Adds a name.
    pub fn add(&mut self, name: Name) {
        let row = self.row(name);
        if let Some(row) = self.0.get_mut(row) {
            row.rotate_right(1);
            row[0] = name;
        }
    }

    /// Whether this name was added and is still known.
    pub fn contains(&self, name: Name) -> bool {
        self.0.get(self.row(name)).is_some_and(|row| row.contains(&name))
    }

    /// The row of a name. Names are digests, so any of their bits will do.
    fn row(&self, name: Name) -> usize {
        let [.., a, b, c, d] = name.to_bytes();
        u32::from_le_bytes([a, b, c, d]) as usize % self.0.len().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_until_others_replace_them() {
        let mut evicted = EvictedNames::new(3);
        let names: Vec<Name> = (0..20_000u32).map(|at| Name::root(&at.to_le_bytes())).collect();
        assert!(!names.iter().any(|&name| evicted.contains(name)));
        for &name in &names {
            evicted.add(name);
            assert!(evicted.contains(name));
        }
        let known = names.iter().filter(|&&name| evicted.contains(name)).count();
        assert_eq!(known, MIN_NAMES, "all rows are full");
        assert_eq!(EvictedNames::new(1 << 20).0.len() * ROW, MAX_NAMES);
    }
}
