//! Sums over the inputs of products: the importance of each column of a matrix.
//!
//! Invariant: the squares of a column are added in f64 in the order of the rows, so that the
//! sums depend neither on threads nor on how the rows came in batches.

use crate::cpu::weights::Matrices;
use crate::handles::Matrix;
use crate::seam::InputSums;
use base::ThreadPool;
use std::collections::HashMap;

/// Columns that one thread adds up at a time.
const COLUMNS: usize = 128;

impl InputSums {
    fn new(name: &str, columns: usize) -> Self {
        Self { name: name.to_owned(), squares: vec![0.0; columns], rows: vec![0] }
    }

    /// Adds whole rows of `x` to the sums of one matrix.
    fn add(&mut self, x: &[f32], pool: &ThreadPool) {
        let width = self.squares.len();
        self.rows[0] += (x.len() / width) as u64;
        pool.for_each_tile(&mut self.squares, width, (1, COLUMNS), |mut tile| {
            let columns = tile.cols();
            let sums = tile.row_mut(0);
            for row in x.chunks_exact(width) {
                for (sum, value) in sums.iter_mut().zip(&row[columns.clone()]) {
                    // The square of an f32 is exact in f64.
                    *sum += f64::from(*value) * f64::from(*value);
                }
            }
        });
    }
}

/// The sums over the inputs of each matrix, where they are collected.
#[derive(Default)]
pub(in crate::cpu) struct CollectedSums(Option<Vec<InputSums>>);

impl CollectedSums {
    /// Takes the sums since the last call, of the named matrices that were multiplied, in the order
    /// in which they were loaded, matrices of one name together. The first call starts to sum.
    pub fn take(&mut self, matrices: &Matrices) -> Vec<InputSums> {
        let zeros = matrices.iter().map(|m| InputSums::new(&m.name, m.cols)).collect();
        let sums = self.0.replace(zeros).unwrap_or_default();
        let mut places = HashMap::new();
        let mut all: Vec<InputSums> = Vec::new();
        for mut more in sums.into_iter().filter(|sums| !sums.name.is_empty()) {
            let place = *places.entry(more.name.clone()).or_insert(all.len());
            match all.get_mut(place) {
                Some(sums) => {
                    sums.squares.append(&mut more.squares);
                    sums.rows.append(&mut more.rows);
                }
                None => all.push(more),
            }
        }
        all.retain(|sums| sums.rows.iter().any(|rows| *rows > 0));
        all
    }

    /// Whether sums are collected.
    pub fn are_collected(&self) -> bool {
        self.0.is_some()
    }

    /// Adds rows of inputs of a product with `weight` to its sums, if they are collected.
    pub fn note(&mut self, pool: &ThreadPool, rows: &[f32], weight: Matrix) {
        if let Some(sums) = &mut self.0 {
            sums[weight.0].add(rows, pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use crate::{MatrixSpec, Mode, Operations, Weights};
    use kernels::quant::F32;
    use std::sync::Arc;

    const COLS: usize = 300;

    fn random(values: usize) -> Vec<f32> {
        let mut rng = base::Rng::new(7);
        (0..values).map(|_| rng.below(1000) as f32 / 37.0 - 12.0).collect()
    }

    fn matrix(cpu: &mut Cpu, name: &str) -> Matrix {
        let bytes = Arc::new(vec![0u8; 4 * 16 * COLS]);
        let spec = MatrixSpec::new(name.into(), &F32, [16, COLS], bytes);
        cpu.matrix(spec).unwrap()
    }

    /// Multiplies `x` in batches of at most `chunk` rows.
    fn collected(x: &[f32], threads: usize, chunk: usize) -> Vec<InputSums> {
        let mut cpu = Cpu::new(threads, Mode::Exact).unwrap();
        let used = matrix(&mut cpu, "used");
        matrix(&mut cpu, "unused");
        let input = cpu.buffer(chunk, COLS).unwrap();
        let out = cpu.buffer(chunk, 16).unwrap();
        cpu.linear(input, &[(used, out)], 1); // Before sums are collected.
        assert_eq!(cpu.input_sums().unwrap(), []);
        for rows in x.chunks(chunk * COLS) {
            let mut data = cpu.core.take(input);
            data[..rows.len()].copy_from_slice(rows);
            cpu.core.put(input, data);
            cpu.linear(input, &[(used, out)], rows.len() / COLS);
        }
        cpu.input_sums().unwrap()
    }

    #[test]
    fn squares_add_up_by_column_in_one_order_whatever_the_threads_and_batches() {
        let x = random(17 * COLS);
        let column = |c: usize| x.iter().skip(c).step_by(COLS).map(|&v| f64::from(v).powi(2));
        let squares = (0..COLS).map(|c| column(c).fold(0.0, |sum, square| sum + square)).collect();
        let expected = [InputSums { name: "used".into(), squares, rows: vec![17] }];
        for (threads, chunk) in [(1, 17), (3, 17), (2, 5), (1, 1)] {
            assert_eq!(collected(&x, threads, chunk), expected, "{threads} {chunk}");
        }
    }

    #[test]
    fn sums_begin_anew_when_taken_and_are_nothing_unasked() {
        let mut cpu = Cpu::new(1, Mode::Exact).unwrap();
        let used = matrix(&mut cpu, "used");
        let (input, out) = (cpu.buffer(2, COLS).unwrap(), cpu.buffer(2, 16).unwrap());
        cpu.linear(input, &[(used, out)], 2);
        assert_eq!(cpu.input_sums().unwrap(), []);
        assert_eq!(cpu.input_sums().unwrap(), []);
        cpu.linear(input, &[(used, out)], 2);
        assert_eq!(cpu.input_sums().unwrap()[0].rows, [2]);
        assert_eq!(cpu.input_sums().unwrap(), []);
    }
}
