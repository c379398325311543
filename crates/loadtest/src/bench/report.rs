//! The results as a table, JSON or CSV.

use super::machine::Machine;
use super::measure::{BenchPlan, Measurement};
use engine::Runner;
use formats::Checkpoint;
use serde::Serialize;
use std::fmt::Write;

/// The measurements with the machine and the model.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    model: String,
    architecture: String,
    mode: &'static str,
    kv_type: &'static str,
    machine: Machine,
    results: Vec<Measurement>,
}

impl BenchReport {
    pub(super) fn new(
        runner: &Runner,
        plan: &BenchPlan<'_>,
        checkpoint: &Checkpoint,
        machine: Machine,
        results: Vec<Measurement>,
    ) -> Self {
        Self {
            model: runner.info().name.clone(),
            architecture: checkpoint.config().architecture.clone(),
            mode: plan.mode.name(),
            kv_type: plan.kv_type.name(),
            machine,
            results,
        }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("numbers and strings only");
        text.push('\n');
        text
    }

    /// The measurements as comma-separated values.
    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "phase,tokens,batch,tokens_per_second,min,max,bytes_per_token,bandwidth_gbs,\
             bandwidth_share,gops,peak_share\n",
        );
        for m in &self.results {
            let rate = m.tokens_per_second;
            let _ = writeln!(
                text,
                "{},{},{},{:.3},{:.3},{:.3},{:.0},{:.3},{:.4},{:.3},{:.4}",
                m.phase,
                m.tokens,
                m.batch,
                rate.median,
                rate.min,
                rate.max,
                m.bytes_per_token,
                m.bandwidth_gbs,
                m.bandwidth_share,
                m.gops,
                m.peak_share
            );
        }
        text
    }

    /// The report as a table.
    pub fn to_table(&self) -> String {
        let Machine {
            threads,
            isa,
            read_bandwidth_gbs,
            read_bandwidth_min_gbs: least,
            read_bandwidth_max_gbs: most,
            f32_gops,
            bf16_gops,
            int8_gops,
        } = &self.machine;
        let bf16 = bf16_gops.map_or(String::new(), |gops| format!(", {gops:.0} BF16 Gop/s"));
        let mut text = format!(
            "{} ({}), mode {}, KV cache {}\nmachine: {threads} threads, {isa}, {read_bandwidth_gbs:.1} GB/s \
             read ({least:.1} to {most:.1}), {f32_gops:.0} f32 Gop/s{bf16}, {int8_gops:.0} int8 Gop/s\n\n",
            self.model, self.architecture, self.mode, self.kv_type
        );
        let head = ("phase", "tokens", "batch", "tok/s", "min", "max", "GB/s", "share", "Gop/s");
        let (a, b, c, d, e, f, g, h, i) = head;
        let _ = writeln!(
            text,
            "{a:8}{b:>7}{c:>6}{d:>10}{e:>10}{f:>10}{g:>8}{h:>7}{i:>9}{:>7}",
            "share"
        );
        for m in &self.results {
            let rate = m.tokens_per_second;
            let _ = writeln!(
                text,
                "{:8}{:>7}{:>6}{:>10.2}{:>10.2}{:>10.2}{:>8.1}{:>6.0}%{:>9.1}{:>6.0}%",
                m.phase,
                m.tokens,
                m.batch,
                rate.median,
                rate.min,
                rate.max,
                m.bandwidth_gbs,
                100.0 * m.bandwidth_share,
                m.gops,
                100.0 * m.peak_share
            );
        }
        text
    }
}
