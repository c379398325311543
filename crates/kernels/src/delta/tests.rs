use super::*;
use crate::Isa;
use crate::elementwise::{Gate, activate};
use proptest::prelude::*;

/// Inputs of one tile, whose rows lie `stride` values apart in one array, as in a workspace.
#[derive(Clone, Debug)]
struct DeltaCase {
    keys: usize,
    rows: usize,
    columns: usize,
    per_channel: bool,
    rule: StateRule,
    stride: usize,
    values: Vec<f32>,
    state: Vec<f32>,
}

impl DeltaCase {
    fn new(keys: usize, rows: usize, columns: usize, per_channel: bool, seed: u64) -> Self {
        let mut random = seed;
        let mut next = |from: f32, to: f32| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            from + (to - from) * ((random >> 40) as f32 / (1u64 << 24) as f32)
        };
        // q, k, decay, v, beta, and a gap.
        let stride = 3 * keys + columns + 3;
        let length = 1.7 / (keys as f32).sqrt();
        let mut values = Vec::new();
        for _ in 0..rows {
            values.extend((0..2 * keys).map(|_| next(-length, length)));
            values.extend((0..keys).map(|_| next(0.6, 1.0)));
            values.extend((0..columns).map(|_| next(-2.0, 2.0)));
            values.push(next(0.0, 1.0));
            values.extend([f32::NAN; 2]);
        }
        let mut state = vec![0.0; keys * LANES];
        for (i, s) in state.iter_mut().enumerate().filter(|(i, _)| i % LANES < columns) {
            *s = next(-1.0, 1.0) + (i % 2) as f32;
        }
        let rule = StateRule::Delta;
        Self { keys, rows, columns, per_channel, rule, stride, values, state }
    }

    /// Rows `rows` of the case.
    fn inputs(&self, rows: std::ops::Range<usize>) -> DeltaRows<'_> {
        let from = |first: usize| Strided {
            data: &self.values[(rows.start * self.stride + first).min(self.values.len())..],
            stride: self.stride,
        };
        DeltaRows {
            keys: self.keys,
            rows: rows.len(),
            q: from(0),
            k: from(self.keys),
            decay: from(2 * self.keys),
            v: from(3 * self.keys),
            beta: from(3 * self.keys + self.columns),
            per_channel: self.per_channel,
            rule: self.rule,
        }
    }

    /// State and outputs after all rows, in calls of the given numbers of rows.
    fn run(&self, isa: Isa, calls: &[usize]) -> (Vec<u32>, Vec<u32>) {
        let stride = self.columns + 2;
        let (mut state, mut out) = (self.state.clone(), vec![7.0; self.rows * stride]);
        let mut done = 0;
        for &rows in calls {
            let inputs = self.inputs(done..done + rows);
            let outputs = Some((&mut out[done * stride..], stride));
            delta_rule(isa, &mut state, &inputs, self.columns, outputs);
            done += rows;
        }
        assert_eq!(done, self.rows, "calls cover the rows");
        assert!(out.chunks(stride).all(|row| row[self.columns..] == [7.0; 2]), "gaps stay");
        (bits(&state), bits(&out))
    }

    /// The recurrence as it is defined, in f64.
    fn naive(&self) -> (Vec<f64>, Vec<f64>) {
        let mut state: Vec<f64> = self.state.iter().map(|s| f64::from(*s)).collect();
        let mut out = Vec::new();
        for row in self.values.chunks(self.stride) {
            let row: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
            let (q, rest) = row.split_at(self.keys);
            let (k, rest) = rest.split_at(self.keys);
            let (decay, rest) = rest.split_at(self.keys);
            let (v, beta) = (&rest[..self.columns], rest[self.columns]);
            for column in 0..self.columns {
                for i in 0..self.keys {
                    let factor = if self.per_channel { decay[i] } else { decay[0] };
                    state[i * LANES + column] *= factor;
                }
                let sum = |state: &[f64], with: &[f64]| -> f64 {
                    (0..self.keys).map(|i| state[i * LANES + column] * with[i]).sum()
                };
                let (known, skip) = match self.rule {
                    StateRule::Delta => (sum(&state, k), 0.0),
                    StateRule::StateSpace { skip } => (0.0, f64::from(skip)),
                };
                let delta = (v[column] - known) * beta;
                for i in 0..self.keys {
                    state[i * LANES + column] += k[i] * delta;
                }
                out.push(sum(&state, q) + skip * v[column]);
            }
        }
        (state, out)
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn close(got: &[u32], want: &[f64], what: &str) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let got = f64::from(f32::from_bits(*got));
        assert!((got - want).abs() < 2e-5, "{what} {i}: {got}, expected {want}");
    }
}

fn cases() -> impl Strategy<Value = DeltaCase> {
    let sizes = (1..70usize, 1..12usize, 1..=16usize);
    let skip = prop::option::of(-2.0f32..2.0);
    let case = |((keys, rows, columns), per_channel, seed, skip): (_, _, _, Option<f32>)| {
        let rule = skip.map_or(StateRule::Delta, |skip| StateRule::StateSpace { skip });
        let per_channel = per_channel && rule == StateRule::Delta;
        DeltaCase { rule, ..DeltaCase::new(keys, rows, columns, per_channel, seed) }
    };
    (sizes, any::<bool>(), any::<u64>(), skip).prop_map(case)
}

proptest! {
    #[test]
    fn delta_rule_follows_its_definition_on_every_isa(case in cases()) {
        let scalar = case.run(Isa::SCALAR, &[case.rows]);
        let (state, out) = case.naive();
        close(&scalar.0, &state, "state");
        let got: Vec<_> = scalar.1.chunks(case.columns + 2).flat_map(|r| &r[..case.columns]).copied()
            .collect();
        close(&got, &out, "output");
        for isa in Isa::available() {
            prop_assert_eq!(case.run(isa, &[case.rows]), scalar.clone(), "{:?}", isa);
        }
    }

    #[test]
    fn rows_give_equal_bits_however_calls_divide_them(
        case in cases(),
        cuts in prop::collection::vec(0..5usize, 12),
    ) {
        for isa in Isa::available() {
            let whole = case.run(isa, &[case.rows]);
            prop_assert_eq!(&case.run(isa, &vec![1; case.rows]), &whole);
            let mut calls = Vec::new();
            for cut in &cuts {
                let done: usize = calls.iter().sum();
                calls.push((*cut).min(case.rows - done));
            }
            calls.push(case.rows - calls.iter().sum::<usize>());
            prop_assert_eq!(&case.run(isa, &calls), &whole, "{:?}", calls);
        }
    }

    #[test]
    fn folded_rows_leave_the_state_of_computed_rows(case in cases()) {
        for isa in Isa::available() {
            let (want, _) = case.run(isa, &[case.rows]);
            let mut state = case.state.clone();
            delta_rule(isa, &mut state, &case.inputs(0..case.rows), case.columns, None);
            prop_assert_eq!(bits(&state), want);
        }
    }

    #[test]
    fn a_column_does_not_depend_on_the_columns_beside_it(case in cases()) {
        for isa in Isa::available() {
            let whole = case.run(isa, &[case.rows]).0;
            let mut state = case.state.clone();
            delta_rule(isa, &mut state, &case.inputs(0..case.rows), 1, None);
            for (got, want) in state.chunks(LANES).zip(whole.chunks(LANES)) {
                prop_assert_eq!(got[0].to_bits(), want[0]);
            }
        }
    }

    #[test]
    fn equal_factors_of_all_channels_are_one_factor(case in cases()) {
        let mut case = DeltaCase { per_channel: false, rule: StateRule::Delta, ..case };
        for row in case.values.chunks_mut(case.stride) {
            let decay = &mut row[2 * case.keys..3 * case.keys];
            decay.fill(decay[0]);
        }
        let channels = DeltaCase { per_channel: true, ..case.clone() };
        for isa in Isa::available() {
            prop_assert_eq!(case.run(isa, &[case.rows]), channels.run(isa, &[case.rows]));
        }
    }

    #[test]
    fn l2_normalise_follows_its_definition(
        x in prop::collection::vec(-5.0f32..5.0, 1..70),
        scale in 0.01f32..2.0,
    ) {
        let squares: f64 = x.iter().map(|v| f64::from(*v).powi(2)).sum();
        let mut scalar = x.clone();
        l2_normalise(Isa::SCALAR, &mut scalar, 1e-6, scale);
        for (x, got) in x.iter().zip(&scalar) {
            let want = f64::from(*x) * f64::from(scale) / (squares + 1e-6).sqrt();
            prop_assert!((f64::from(*got) - want).abs() < 1e-6, "{got} {want}");
        }
        for isa in Isa::available() {
            let mut got = x.clone();
            l2_normalise(isa, &mut got, 1e-6, scale);
            prop_assert_eq!(&got, &scalar);
        }
    }

    #[test]
    fn gates_follow_their_definition(
        heads in prop::collection::vec(
            (-12.0f32..12.0, -20.0f32..20.0, -8.0f32..4.0, -3.0f32..3.0), 1..40),
        limits in prop_oneof![Just([0.0, f32::INFINITY]), Just([0.01, 2.0])],
    ) {
        let column = |f: fn(&(f32, f32, f32, f32)) -> f32| heads.iter().map(f).collect::<Vec<_>>();
        let (a, b, dt) = (column(|h| h.0), column(|h| h.1), column(|h| h.2));
        let rate: Vec<f32> = heads.iter().map(|h| -h.3.exp()).collect();
        let all = |isa| {
            let (mut times, mut beta) = (vec![0.0; heads.len()], b.clone());
            step_times(isa, &a, &dt, limits, &mut times);
            let mut decay = times.clone();
            decays(isa, &rate, &mut decay);
            activate(isa, Gate::Sigmoid, &mut beta);
            [times, decay, beta]
        };
        let scalar = all(Isa::SCALAR);
        for h in 0..heads.len() {
            let time = (f64::from(a[h]) + f64::from(dt[h])).exp().ln_1p();
            let time = time.clamp(f64::from(limits[0]), f64::from(limits[1]));
            let want = [time, (f64::from(rate[h]) * time).exp(), 1.0 / (1.0 + (-f64::from(b[h])).exp())];
            for (got, want) in scalar.iter().zip(want) {
                prop_assert!((f64::from(got[h]) - want).abs() < 2e-6 * (1.0 + want), "{} {want}", got[h]);
            }
        }
        for isa in Isa::available() {
            prop_assert_eq!(&all(isa), &scalar);
        }
    }
}

#[test]
fn no_rows_change_nothing() {
    let case = DeltaCase::new(33, 3, 16, false, 1);
    for isa in Isa::available() {
        let mut state = case.state.clone();
        delta_rule(isa, &mut state, &case.inputs(0..0), 16, Some((&mut [], 16)));
        assert_eq!(bits(&state), bits(&case.state));
    }
}

#[test]
fn heads_of_128_keys_stay_close_over_a_thousand_rows() {
    let case = DeltaCase::new(128, 1000, 16, false, 5);
    let (state, out) = case.naive();
    let (got_state, got) = case.run(Isa::SCALAR, &[case.rows]);
    close(&got_state, &state, "state");
    let got: Vec<_> = got.chunks(18).flat_map(|row| &row[..16]).copied().collect();
    close(&got, &out, "output");
}
