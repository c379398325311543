//! The results as a table, JSON or CSV.

use super::disk::DiskRates;
use super::machine::Machine;
use super::measure::{Drafted, Measurement, StreamedExperts};
use super::spread::MedianRange;
use engine::metrics::steps_by_drafts;
use serde::Serialize;
use std::fmt::Write;

const HEAD: &str =
    "phase    tokens batch guesses     tok/s       min       max    GB/s  share    Gop/s  share";

/// The measurements with the machine and the model.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    pub(super) model: String,
    pub(super) architecture: String,
    pub(super) mode: &'static str,
    pub(super) kv_type: &'static str,
    pub(super) arithmetic: String,
    pub(super) machine: Machine,
    /// What the disk gives, where experts are streamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disk: Option<DiskRates>,
    pub(super) results: Vec<Measurement>,
}

impl BenchReport {
    /// The report with the rates of the disk that experts are read from, and their shares of them.
    pub fn with_disk(mut self, disk: DiskRates) -> Self {
        for experts in self.results.iter_mut().filter_map(|result| result.experts.as_mut()) {
            experts.raw_share = Some(experts.read_gbs / disk.random_gbs);
        }
        self.disk = Some(disk);
        self
    }

    /// The measurements as comma-separated values.
    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "phase,tokens,batch,guesses,tokens_per_second,min,max,bytes_per_token,bandwidth_gbs,\
             bandwidth_share,gops,peak_share\n",
        );
        for m in &self.results {
            let MedianRange { median, min, max } = m.tokens_per_second;
            let _ = write!(text, "{},{},{},{}", m.phase, m.tokens, m.batch, m.guesses);
            let _ = write!(text, ",{median:.3},{min:.3},{max:.3},{:.0}", m.bytes_per_token);
            let _ = write!(text, ",{:.3},{:.4}", m.bandwidth_gbs, m.bandwidth_share);
            let _ = writeln!(text, ",{:.3},{:.4}", m.gops, m.peak_share);
        }
        text
    }

    /// The report as a table.
    pub fn to_table(&self) -> String {
        let Self { model, architecture, mode, kv_type, arithmetic, machine, .. } = self;
        let mut text = format!("{model} ({architecture}), mode {mode}, KV cache {kv_type}");
        let _ = writeln!(text, ", arithmetic {arithmetic}");
        let _ = write!(text, "machine: {} threads, {}", machine.threads, machine.isa);
        let (least, most) = (machine.read_bandwidth_min_gbs, machine.read_bandwidth_max_gbs);
        let median = machine.read_bandwidth_gbs;
        let _ = write!(text, ", {median:.1} GB/s read ({least:.1} to {most:.1})");
        let _ = write!(text, ", {:.0} f32 Gop/s", machine.f32_gops);
        if let Some(gops) = machine.bf16_gops {
            let _ = write!(text, ", {gops:.0} BF16 Gop/s");
        }
        let _ = writeln!(text, ", {:.0} int8 Gop/s\n\n{HEAD}", machine.int8_gops);
        for m in &self.results {
            let MedianRange { median, min, max } = m.tokens_per_second;
            let (bandwidth, peak) = (100.0 * m.bandwidth_share, 100.0 * m.peak_share);
            let _ = write!(text, "{:8}{:>7}{:>6}{:>8}", m.phase, m.tokens, m.batch, m.guesses);
            let _ = write!(text, "{median:>10.2}{min:>10.2}{max:>10.2}{:>8.1}", m.bandwidth_gbs);
            let _ = writeln!(text, "{bandwidth:>6.0}%{:>9.1}{peak:>6.0}%", m.gops);
        }
        for m in &self.results {
            let Some(StreamedExperts { hit_rate, read_gbs, raw_share, wait_share }) = m.experts
            else {
                continue;
            };
            let (hits, waits) = (100.0 * hit_rate, 100.0 * wait_share);
            let _ = write!(text, "\n{} {} x{}: {hits:.0}% of chosen", m.phase, m.tokens, m.batch);
            let _ = write!(text, " experts in memory, {read_gbs:.2} GB/s read");
            if let Some(share) = raw_share {
                let _ = write!(text, " ({:.0}% of the disk's)", 100.0 * share);
            }
            let _ = writeln!(text, ", {waits:.0}% of the time waiting for them");
        }
        for m in &self.results {
            let Some(Drafted { steps, promised }) = &m.drafted else { continue };
            let share = 100.0 * m.tokens_per_second.median / promised;
            let _ =
                write!(text, "\ndrafted {} x{}: {promised:.1} tok/s promised", m.tokens, m.batch);
            let _ = writeln!(
                text,
                " ({share:.0}% reached); steps by drafts: {}",
                steps_by_drafts(steps)
            );
        }
        text + &self.disk.as_ref().map_or_else(String::new, |disk| format!("\n{}", disk.to_text()))
    }
}
