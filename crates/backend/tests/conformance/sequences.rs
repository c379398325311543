//! Sequences whose rows come in steps, for operations that keep something from step to step.

use crate::pair::Pair;
use backend::{Backend, Batch, Buffer};

/// Positions of a block.
pub const BLOCK: usize = 16;

/// Numbers `0..count` in random order.
pub fn shuffled(pair: &mut Pair, count: usize) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    for at in (1..count).rev() {
        let other = pair.number(0, at);
        numbers.swap(at, other);
    }
    numbers
}

/// A batch with one sequence of all positions of `blocks` blocks in each of `groups` groups.
pub fn whole(blocks: usize, groups: usize) -> Batch {
    let rows = blocks * BLOCK;
    let mut batch = Batch::with_capacity(rows, groups * blocks, groups);
    batch.push([&vec![0; rows], &[]], 0, 1);
    let table: Vec<u32> = (0..blocks as u32).collect();
    (0..groups).for_each(|_| batch.table(&table));
    batch
}

/// Writes the first rows of a buffer.
pub fn write(backend: &mut dyn Backend, buffer: Buffer, rows: usize, values: &[f32]) {
    backend.update(buffer, rows, &mut |to| to.copy_from_slice(values));
}

/// Asserts that values agree to `tolerance` of the largest.
pub fn close(cpu: &[f32], tested: &[f32], tolerance: f32, what: &str) {
    assert_eq!(cpu.len(), tested.len());
    let largest = cpu.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for (at, (cpu, tested)) in cpu.iter().zip(tested).enumerate() {
        let agree = (cpu - tested).abs() <= tolerance * largest;
        assert!(agree, "{what}: value {at}: {tested}, expected {cpu} (of {largest})");
    }
}
