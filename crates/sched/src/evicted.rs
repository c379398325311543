//! The names of blocks that were evicted, to say why they are not found.

use base::Name;

/// Most names of a pool: 1 MiB.
const MAX_NAMES: usize = 1 << 16;

/// Names of evicted blocks. A name replaces the one before it in the same place, so that the memory
/// is bounded and nothing is allocated later.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvictedNames(Box<[Name]>);

impl EvictedNames {
    /// A memory for a pool of `blocks` blocks.
    pub fn new(blocks: usize) -> Self {
        let places = (4 * blocks).next_power_of_two().min(MAX_NAMES);
        Self(vec![Name::default(); places].into())
    }

    /// Adds a name.
    pub fn add(&mut self, name: Name) {
        let place = self.place(name);
        if let Some(known) = self.0.get_mut(place) {
            *known = name;
        }
    }

    /// Whether this name was added and is still known.
    pub fn contains(&self, name: Name) -> bool {
        self.0.get(self.place(name)) == Some(&name)
    }

    /// The place of a name. Names are digests, so any of their bits will do.
    fn place(&self, name: Name) -> usize {
        let [.., a, b, c, d] = name.to_bytes();
        u32::from_le_bytes([a, b, c, d]) as usize % self.0.len().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_until_others_take_their_places() {
        let mut evicted = EvictedNames::new(3);
        let names: Vec<Name> = (0..200u32).map(|at| Name::root(&at.to_le_bytes())).collect();
        assert!(!names.iter().any(|&name| evicted.contains(name)));
        for &name in &names {
            evicted.add(name);
            assert!(evicted.contains(name));
        }
        let known = names.iter().filter(|&&name| evicted.contains(name)).count();
        assert_eq!(known, 16, "all places are taken");
        assert_eq!(EvictedNames::new(1 << 20).0.len(), MAX_NAMES);
    }
}
