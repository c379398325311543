//! What this machine sustains: reading memory, and arithmetic in registers.

use anyhow::{Context, Result};
use base::{AlignedVec, ThreadPool};
use kernels::{Isa, probe};
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

/// Bytes read at once: well beyond any last-level cache.
const BUFFER: usize = 1 << 30;
/// Bytes a thread claims at once.
const PIECE: usize = 1 << 20;
const RUNS: usize = 7;
/// Steps of an arithmetic probe, some milliseconds.
const STEPS: u64 = 2_000_000;

/// Sustained rates of all threads together; the best of several runs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub threads: usize,
    pub isa: &'static str,
    /// GB/s (1e9 bytes) of reading.
    pub read_bandwidth_gbs: f64,
    /// 1e9 f32 operations a second, multiply and add counted as two.
    pub f32_gops: f64,
    /// The same for BF16 dot products, where the CPU has them.
    pub bf16_gops: Option<f64>,
}

impl Machine {
    pub fn measure(threads: usize) -> Result<Self> {
        let pool = ThreadPool::new(threads).context("cannot start the threads")?;
        let isa = Isa::detect().unwrap_or(Isa::SCALAR);
        let per_step = probe::OPS_PER_STEP;
        let f32_gops = arithmetic(&pool, per_step, |sum| probe::multiply_adds(isa, STEPS, sum));
        let bf16_gops = isa.has_bf16_dot().then(|| {
            arithmetic(&pool, probe::BF16_OPS_PER_STEP, |sum| {
                probe::bf16_dots(isa, STEPS, sum);
            })
        });
        Ok(Self {
            threads,
            isa: isa.name(),
            read_bandwidth_gbs: bandwidth(&pool, isa),
            f32_gops,
            bf16_gops,
        })
    }
}

impl Machine {
    /// The better of two measurements: what another process took away from one of them was
    /// still there to be had.
    pub fn best(self, other: Self) -> Self {
        Self {
            read_bandwidth_gbs: self.read_bandwidth_gbs.max(other.read_bandwidth_gbs),
            f32_gops: self.f32_gops.max(other.f32_gops),
            bf16_gops: self.bf16_gops.zip(other.bf16_gops).map(|(a, b)| a.max(b)),
            ..self
        }
    }
}

/// The least seconds of some runs.
fn best(mut run: impl FnMut()) -> f64 {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn arithmetic(pool: &ThreadPool, ops_per_step: u64, probe: impl Fn(&mut f32) + Sync) -> f64 {
    let seconds = best(|| {
        pool.run(&|_| {
            let mut sum = 1.0;
            probe(&mut sum);
            black_box(sum);
        });
    });
    (ops_per_step * STEPS * pool.threads() as u64) as f64 / seconds / 1e9
}

fn bandwidth(pool: &ThreadPool, isa: Isa) -> f64 {
    const PIECE_LEN: usize = PIECE / size_of::<f32>();
    let mut data = AlignedVec::<f32>::zeroed(BUFFER / size_of::<f32>());
    // Written first: untouched pages would all be one page of zeros.
    pool.for_each_tile(&mut data, PIECE_LEN, (1, PIECE_LEN), |mut tile| {
        for row in tile.rows() {
            tile.row_mut(row).fill(1.0);
        }
    });
    let seconds = best(|| {
        pool.for_each(data.len() / PIECE_LEN, |piece| {
            let mut sum = 0.0;
            probe::read(isa, &data[piece * PIECE_LEN..][..PIECE_LEN], &mut sum);
            black_box(sum);
        });
    });
    BUFFER as f64 / seconds / 1e9
}
