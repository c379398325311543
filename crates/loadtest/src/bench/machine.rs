//! Probes of the machine: its read bandwidth and its arithmetic peak.

use super::spread::MedianRange;
use anyhow::{Context, Result};
use backend::Bits;
use base::{AlignedVec, ThreadPool};
use kernels::{Isa, probe};
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

/// Bytes of the buffer: well beyond any last-level cache.
const BUFFER: usize = 1 << 30;
/// Bytes a thread claims at once.
const PIECE: usize = 1 << 20;
const PIECE_LEN: usize = PIECE / size_of::<f32>();
/// Steps of an arithmetic probe, which take some milliseconds.
const STEPS: u64 = 2_000_000;

/// Sustained rates of all threads together: medians over the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub threads: usize,
    pub isa: &'static str,
    /// Read bandwidth in GB/s (1e9 bytes).
    pub read_bandwidth_gbs: f64,
    pub read_bandwidth_min_gbs: f64,
    pub read_bandwidth_max_gbs: f64,
    /// 1e9 f32 operations per second; a multiply-add counts as two.
    pub f32_gops: f64,
    /// The same for BF16 dot products, where the CPU has them.
    pub bf16_gops: Option<f64>,
    /// The same for dot products of bytes.
    pub int8_gops: f64,
}

/// Samples the machine between the runs that are compared with it, so that the load of other
/// programs affects both alike.
pub(super) struct Probe {
    pool: ThreadPool,
    pub isa: Isa,
    data: AlignedVec<f32>,
    bandwidth: Vec<f64>,
    f32_gops: Vec<f64>,
    bf16_gops: Vec<f64>,
    int8_gops: Vec<f64>,
}

impl Probe {
    /// A machine that computes these bits with `threads` threads, of which nothing is measured yet.
    ///
    /// # Errors
    /// If the threads cannot be started, or the memory cannot be allocated.
    pub fn new(threads: usize, bits: Bits) -> Result<Self> {
        let pool = ThreadPool::new(threads).context("cannot start threads")?;
        let mut data = AlignedVec::try_zeroed(BUFFER / size_of::<f32>())
            .context("cannot measure the memory's bandwidth")?;
        // Written first: untouched pages would all be one page of zeros.
        pool.for_each_tile(&mut data, PIECE_LEN, (1, PIECE_LEN), |mut tile| {
            for row in tile.rows() {
                tile.row_mut(row).fill(1.0);
            }
        });
        let isa = bits.limit(Isa::detect().unwrap_or(Isa::SCALAR));
        let (bandwidth, f32_gops, bf16_gops, int8_gops) = Default::default();
        Ok(Self { pool, isa, data, bandwidth, f32_gops, bf16_gops, int8_gops })
    }

    /// Takes one sample.
    pub fn sample(&mut self) {
        let seconds = self.read();
        self.bandwidth.push(BUFFER as f64 / seconds / 1e9);
        let isa = self.isa;
        let gops = self.gops(probe::OPS_PER_STEP, |sum| probe::multiply_adds(isa, STEPS, sum));
        self.f32_gops.push(gops);
        let gops = self.gops(probe::INT8_OPS_PER_STEP, |sum| probe::int8_dots(isa, STEPS, sum));
        self.int8_gops.push(gops);
        if isa.has_bf16_dot() {
            let gops = self.gops(probe::BF16_OPS_PER_STEP, |sum| {
                probe::bf16_dots(isa, STEPS, sum);
            });
            self.bf16_gops.push(gops);
        }
    }

    /// The medians of all samples, at least one.
    pub fn machine(&self) -> Machine {
        let bandwidth = MedianRange::of(&self.bandwidth);
        let bf16 = !self.bf16_gops.is_empty();
        Machine {
            threads: self.pool.threads(),
            isa: self.isa.name(),
            read_bandwidth_gbs: bandwidth.median,
            read_bandwidth_min_gbs: bandwidth.min,
            read_bandwidth_max_gbs: bandwidth.max,
            f32_gops: MedianRange::of(&self.f32_gops).median,
            bf16_gops: bf16.then(|| MedianRange::of(&self.bf16_gops).median),
            int8_gops: MedianRange::of(&self.int8_gops).median,
        }
    }

    /// Seconds to read the buffer once.
    fn read(&self) -> f64 {
        let start = Instant::now();
        self.pool.for_each(self.data.len() / PIECE_LEN, |piece| {
            let mut sum = 0.0;
            probe::read(self.isa, &self.data[piece * PIECE_LEN..][..PIECE_LEN], &mut sum);
            black_box(sum);
        });
        start.elapsed().as_secs_f64()
    }

    /// 1e9 operations per second that `probe` computes on all threads.
    fn gops(&self, ops_per_step: u64, probe: impl Fn(&mut f32) + Sync) -> f64 {
        let start = Instant::now();
        self.pool.run(&|_| {
            let mut sum = 1.0;
            probe(&mut sum);
            black_box(sum);
        });
        let operations = (ops_per_step * STEPS * self.pool.threads() as u64) as f64;
        operations / start.elapsed().as_secs_f64() / 1e9
    }
}
