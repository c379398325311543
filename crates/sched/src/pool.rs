//! The free list of KV blocks.

/// Blocks of the KV cache, each free or owned by one sequence.
#[derive(Clone, Debug)]
pub struct BlockPool {
    /// Free blocks; the last is given out first.
    free: Vec<u32>,
    total: usize,
}

impl BlockPool {
    /// A pool of `total` free blocks, numbered from 0.
    pub fn new(total: usize) -> Self {
        let total_u32 = u32::try_from(total).expect("block numbers are 32 bits");
        Self { free: (0..total_u32).rev().collect(), total }
    }

    /// Blocks in all.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Blocks nobody owns.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes `count` blocks, or none if there are not so many.
    pub fn take(&mut self, count: usize) -> Option<Vec<u32>> {
        let rest = self.free.len().checked_sub(count)?;
        let mut blocks = self.free.split_off(rest);
        blocks.reverse();
        Some(blocks)
    }

    /// Returns blocks taken before.
    pub fn give_back(&mut self, blocks: Vec<u32>) {
        self.free.extend(blocks.into_iter().rev());
        assert!(self.free.len() <= self.total, "more blocks came back than were taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_conserved() {
        let mut pool = BlockPool::new(5);
        let a = pool.take(3).unwrap();
        assert_eq!(a, [0, 1, 2]);
        assert_eq!(pool.take(3), None);
        assert_eq!(pool.free(), 2);
        pool.give_back(a);
        assert_eq!(pool.take(5).unwrap(), [0, 1, 2, 3, 4]);
    }
}
