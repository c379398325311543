//! The times of steps of few rows, measured before there are requests.

use crate::request::handle::ModelTask;
use crate::request::speculate::Speculate;
use crate::step::run::Engine;
use crate::step::step_cost::MEASURED;
use models::DraftStates;
use std::time::{Duration, Instant};

/// Steps of each number of rows. The first one warms up.
const ROUNDS: usize = 2;
/// Most rows of a batch that drafts tokens.
const DRAFTED: usize = 4;
/// Time for all of them, which begins when the engine is loaded.
pub const MEASURE_TIME: Duration = Duration::from_secs(1);
/// Distance of the ids of the rows, which choose different experts.
const STRIDE: usize = 7919;

impl Engine {
    /// Computes steps of few rows of no sequence, until a request comes, to know what drafts cost.
    /// They use blocks and a state that are free: no request has been computed yet.
    ///
    /// Where weights are streamed, what a step costs depends on its tokens, and it would read
    /// experts that no request chooses.
    pub(super) fn measure_steps(&mut self) {
        let generates = self.runner.info.task == ModelTask::Generate && !self.runner.is_encoder();
        let drafts = self.options.speculate != Speculate::Off;
        if !generates || !drafts || self.runner.stream_stats().is_some() {
            return;
        }
        let start = Instant::now();
        let mut sequence = self.runner.sequences(1).remove(0);
        let limits = self.runner.limits;
        let most = limits.logit_rows.min(limits.rows).min(sequence.most_rows());
        let vocab = self.runner.info.vocab_size;
        let tokens = (0..most).map(|at| (at * STRIDE % vocab) as u32).collect::<Vec<u32>>();
        for rows in [MEASURED; ROUNDS].into_iter().flatten().filter(|rows| *rows <= most) {
            let submissions = &self.receiver.submissions;
            let is_wanted = !submissions.is_empty() || submissions.is_closed();
            if is_wanted || self.others_work() || start.elapsed() > MEASURE_TIME {
                break;
            }
            let (turn, _) = self.take_turn();
            self.batch.clear();
            let parts = [&tokens[..1], &tokens[1..rows]];
            sequence.push_with(&mut self.batch, parts, 0, (0, rows));
            self.batch.adapt(self.runner.adapters());
            let begun = Instant::now();
            let done = self.runner.forward_unrecorded(&self.batch);
            let took = begun.elapsed();
            drop(turn);
            if done.is_err() {
                // The first request says why.
                break;
            }
            self.measure_drafts(rows);
            if !self.runner.take_prepared() {
                self.drafts.cost.measure(rows, took);
            }
        }
        self.rest();
    }

    /// Drafts the tokens after the `rows` of the batch with the model's own layers, and computes as
    /// many with the second model, to know what that costs.
    fn measure_drafts(&mut self, rows: usize) {
        if let Some(model) = self.drafts.model.as_mut().filter(|_| rows <= DRAFTED) {
            model.measure(rows);
        }
        let Some(layers) = self.drafts.layers.as_mut().filter(|_| rows <= DRAFTED) else { return };
        let states = vec![0.0; rows * self.runner.state_width()];
        let begun = Instant::now();
        if self.runner.draft(&self.batch, 0, DraftStates::Own(&states)).is_ok() {
            layers.cost.measure(rows, begun.elapsed());
        }
    }
}
