//! Two devices with the same contents.

use backend::{Backend, Buffer, Vector};
use base::Rng;

/// The CPU and a tested device. Handles of both are equal, for both make the same things in the
/// same order.
pub struct Pair {
    pub cpu: Box<dyn Backend>,
    pub tested: Box<dyn Backend>,
    pub rng: Rng,
}

impl Pair {
    pub fn new(cpu: Box<dyn Backend>, tested: Box<dyn Backend>, seed: u64) -> Self {
        Self { cpu, tested, rng: Rng::new(1000 + seed) }
    }

    /// A number from `least` to `most`.
    pub fn number(&mut self, least: usize, most: usize) -> usize {
        least + self.rng.below((most - least + 1) as u64) as usize
    }

    /// Random values around 0.
    pub fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.rng.normal()).collect()
    }

    /// Does the same on both.
    pub fn both<T: PartialEq + std::fmt::Debug>(
        &mut self,
        mut act: impl FnMut(&mut dyn Backend) -> T,
    ) -> T {
        let made = act(&mut *self.cpu);
        assert_eq!(act(&mut *self.tested), made, "handles of both devices");
        made
    }

    /// A buffer `[rows, width]` of random values.
    pub fn buffer(&mut self, rows: usize, width: usize) -> Buffer {
        let buffer = self.both(|backend| backend.buffer(rows, width).unwrap());
        self.fill(buffer, rows, width);
        buffer
    }

    /// Fills a buffer `[rows, width]` with random values.
    pub fn fill(&mut self, buffer: Buffer, rows: usize, width: usize) {
        let values = self.values(rows * width);
        self.both(|backend| backend.update(buffer, rows, &mut |to| to.copy_from_slice(&values)));
    }

    /// A vector of random values.
    pub fn vector(&mut self, len: usize) -> Vector {
        let values = self.values(len);
        self.both(|backend| backend.vector(values.clone()))
    }

    /// The values of a buffer on both.
    pub fn read(&mut self, buffer: Buffer, rows: usize) -> [Vec<f32>; 2] {
        [&mut self.cpu, &mut self.tested].map(|backend| {
            backend.fetch(buffer, rows);
            backend.end().unwrap();
            backend.read(buffer, rows).to_vec()
        })
    }

    /// Asserts that values of both differ by at most `tolerance` of the largest.
    pub fn agree(&mut self, buffer: Buffer, rows: usize, tolerance: f32, what: &str) {
        let [cpu, tested] = self.read(buffer, rows);
        let largest = cpu.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        for (at, (cpu, tested)) in cpu.iter().zip(&tested).enumerate() {
            let close = (cpu - tested).abs() <= tolerance * largest;
            let device = self.tested.device().name;
            assert!(close, "{device}: {what}: value {at}: {tested}, expected {cpu} (of {largest})");
        }
    }
}
