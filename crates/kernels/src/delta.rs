//! The gated delta rule (Yang et al., 2024), with a decay for each channel too (Kimi Team, 2025):
//! a matrix per head that every row decays, corrects towards its value and reads. The state space
//! of Mamba-2 (Dao and Gu, 2024) is the same without the correction.
//!
//! A *tile* is sixteen value columns of a head, `[keys][16]`, with columns in lanes. Each row goes
//! through the recurrence, in prompts too, so that a tile depends on the rows before and not on the
//! calls that brought them. A sum over keys is two sums, of the keys with equal remainders in
//! ascending order, which are added in ascending order.

use crate::elementwise::{Pairwise, each_pair, lower};
use crate::lanes::{LANES, Lanes, isa_dispatch, load_partial};
use crate::math::{exp, softplus};

/// Sums that a sum over keys is divided into, which hides the latency of multiply-adds.
const SUMS: usize = 2;

/// Values of consecutive rows: those of row `i` begin at `data[i * stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// Values of all rows.
    pub data: &'a [f32],
    /// From a row's first value to the next row's.
    pub stride: usize,
}

impl<'a> Strided<'a> {
    /// The first `len` values of row `i`.
    #[inline(always)]
    fn row(self, i: usize, len: usize) -> &'a [f32] {
        &self.data[i * self.stride..][..len]
    }
}

/// What consecutive rows of a sequence bring to one head.
#[derive(Clone, Copy, Debug)]
pub struct DeltaRows<'a> {
    /// Values in a key.
    pub keys: usize,
    /// Number of rows.
    pub rows: usize,
    /// Queries, normalised and scaled: `keys` values a row.
    pub q: Strided<'a>,
    /// Keys, normalised: `keys` values a row.
    pub k: Strided<'a>,
    /// Values, from the tile's first column.
    pub v: Strided<'a>,
    /// Factors of the state: `keys` values a row if `per_channel`, else one.
    pub decay: Strided<'a>,
    /// Whether each key has a factor of its own.
    pub per_channel: bool,
    /// Share of the correction that is made, or length of the step: one value a row.
    pub beta: Strided<'a>,
    /// What the state becomes.
    pub rule: StateRule,
}

/// What a state that has decayed becomes, and what a row reads from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StateRule {
    /// The delta rule: the state is corrected by `(v - what it knows of the key) * beta`.
    Delta,
    /// A state space: `v * beta` is added. The output gets `v * skip` besides.
    StateSpace {
        /// Share of the value that passes the state by.
        skip: f32,
    },
}

isa_dispatch! {
    /// Takes one tile of a head through `inputs.rows` rows. For each row of the delta rule
    ///
    /// - `S[k] *= decay[k]`,
    /// - `delta = (v - sum of S[k] * key[k]) * beta`,
    /// - `out = sum of S[k] * q[k] + delta * sum of key[k] * q[k]`, with the state after
    ///   `S[k] += key[k] * delta`, without another pass over it.
    ///
    /// For each row of a state space
    ///
    /// - `S[k] = S[k] * decay + key[k] * (v * beta)`,
    /// - `out = sum of S[k] * q[k] + v * skip`.
    ///
    /// `state` is `[keys][16]`, of whose columns the first `columns` are used. `out` is where the
    /// outputs begin and the distance between rows; without it rows are only folded into the
    /// state, which becomes the same.
    ///
    /// # Panics
    /// If `state` is not `keys` times 16 values, `columns` is not in 1..=16, or a row lacks values.
    pub fn delta_rule(
        state: &mut [f32],
        inputs: &DeltaRows<'_>,
        columns: usize,
        out: Option<(&mut [f32], usize)>,
    ) = delta_rule_body
}

isa_dispatch! {
    /// `x[i] = x[i] * scale / sqrt(sum of squares + eps)`, in place.
    pub fn l2_normalise(x: &mut [f32], eps: f32, scale: f32) = l2_normalise_body
}

isa_dispatch! {
    /// Lengths of steps: `times[i] = softplus(a[i] + dt[i])`, within `limits`. All slices have one
    /// length.
    pub fn step_times(a: &[f32], dt: &[f32], limits: [f32; 2], times: &mut [f32]) = step_times_body
}

isa_dispatch! {
    /// Factors of states, in place of the lengths of steps: `times[i] = exp(rate[i] * times[i])`.
    /// Rates are `-exp(A_log)`. Both slices have one length.
    pub fn decays(rate: &[f32], times: &mut [f32]) = decays_body
}

#[inline(always)]
fn delta_rule_body<L: Lanes>(
    state: &mut [f32],
    inputs: &DeltaRows<'_>,
    columns: usize,
    out: Option<(&mut [f32], usize)>,
) {
    assert_eq!(state.len(), inputs.keys * LANES, "a tile has sixteen columns for each key");
    assert!((1..=LANES).contains(&columns), "{columns} columns of a tile");
    let (tile, _) = state.as_chunks_mut::<LANES>();
    match (inputs.per_channel, inputs.rule) {
        (true, StateRule::Delta) => through_rows::<L, true>(tile, inputs, columns, out),
        (false, StateRule::Delta) => through_rows::<L, false>(tile, inputs, columns, out),
        (false, StateRule::StateSpace { skip }) => {
            through_space::<L>(tile, inputs, (columns, skip), out);
        }
        (true, StateRule::StateSpace { .. }) => panic!("a state space has one decay for a head"),
    }
}

/// A row's values along the keys.
#[derive(Clone, Copy)]
struct Row<'a> {
    q: &'a [f32],
    k: &'a [f32],
    decay: &'a [f32],
}

#[inline(always)]
fn through_rows<L: Lanes, const CHANNELS: bool>(
    tile: &mut [[f32; LANES]],
    inputs: &DeltaRows<'_>,
    columns: usize,
    mut out: Option<(&mut [f32], usize)>,
) {
    let keys = inputs.keys;
    let row = |i: usize| Row {
        q: inputs.q.row(i, keys),
        k: inputs.k.row(i, keys),
        decay: inputs.decay.row(i, if CHANNELS { keys } else { 1 }),
    };
    // A sweep over the tile adds the correction of the row before and decays for this row.
    let mut delta = L::splat(0.0);
    for i in 0..inputs.rows {
        let this = row(i);
        let [memory, read] = match i.checked_sub(1) {
            None => sweep::<L, CHANNELS, false, true>(tile, this.k, delta, this),
            Some(before) => sweep::<L, CHANNELS, true, true>(tile, row(before).k, delta, this),
        };
        let v = load_partial::<L>(inputs.v.row(i, columns), 0.0);
        delta = v.sub(memory).mul(L::splat(inputs.beta.row(i, 1)[0]));
        if let Some((out, stride)) = &mut out {
            let mut values = [0.0; LANES];
            delta.mul_add(L::splat(dot::<L>(this.k, this.q)), read).store(&mut values);
            out[i * *stride..][..columns].copy_from_slice(&values[..columns]);
        }
    }
    if let Some(last) = inputs.rows.checked_sub(1) {
        let last = row(last);
        sweep::<L, CHANNELS, true, false>(tile, last.k, delta, last);
    }
}

/// [`through_rows`] in a state space, where nothing is read before it is added.
#[inline(always)]
fn through_space<L: Lanes>(
    tile: &mut [[f32; LANES]],
    inputs: &DeltaRows<'_>,
    (columns, skip): (usize, f32),
    mut out: Option<(&mut [f32], usize)>,
) {
    let keys = inputs.keys;
    for i in 0..inputs.rows {
        let (key, query) = (inputs.k.row(i, keys), inputs.q.row(i, keys));
        let v = load_partial::<L>(inputs.v.row(i, columns), 0.0);
        let added = v.mul(L::splat(inputs.beta.row(i, 1)[0]));
        let read = add_to_space(tile, (key, query), L::splat(inputs.decay.row(i, 1)[0]), added);
        if let Some((out, stride)) = &mut out {
            let mut values = [0.0; LANES];
            v.mul_add(L::splat(skip), read).store(&mut values);
            out[i * *stride..][..columns].copy_from_slice(&values[..columns]);
        }
    }
}

/// `S[k] = S[k] * decay + key[k] * added`; returns the sums of the state times the query.
#[inline(always)]
fn add_to_space<L: Lanes>(
    tile: &mut [[f32; LANES]],
    (key, query): (&[f32], &[f32]),
    decay: L,
    added: L,
) -> L {
    let n = tile.len();
    let mut sums = [L::splat(0.0); SUMS];
    let (tiles, tile_rest) = tile.as_chunks_mut::<SUMS>();
    let ((keys, key_rest), (queries, query_rest)) =
        (key[..n].as_chunks::<SUMS>(), query[..n].as_chunks::<SUMS>());
    for ((tile, key), query) in tiles.iter_mut().zip(keys).zip(queries) {
        for i in 0..SUMS {
            sums[i] = add_key(&mut tile[i], key[i], query[i], decay, added, sums[i]);
        }
    }
    for (i, state) in tile_rest.iter_mut().enumerate() {
        sums[i] = add_key(state, key_rest[i], query_rest[i], decay, added, sums[i]);
    }
    let mut sum = sums[0];
    for more in &sums[1..] {
        sum = sum.add(*more);
    }
    sum
}

/// [`add_to_space`] for one key of the tile; returns the sum with what its query reads.
#[inline(always)]
fn add_key<L: Lanes>(
    state: &mut [f32; LANES],
    key: f32,
    query: f32,
    decay: L,
    added: L,
    sum: L,
) -> L {
    let s = L::splat(key).mul_add(added, L::load(state).mul(decay));
    s.store(state);
    s.mul_add(L::splat(query), sum)
}

/// Passes over a tile once: adds `key * delta` if `FOLD`; if `READ`, multiplies with the row's
/// decay and returns the sums of the state times the row's key and times its query.
#[inline(always)]
fn sweep<L: Lanes, const CHANNELS: bool, const FOLD: bool, const READ: bool>(
    tile: &mut [[f32; LANES]],
    key: &[f32],
    delta: L,
    row: Row<'_>,
) -> [L; 2] {
    let mut sums = [[L::splat(0.0); 2]; SUMS];
    let decay = L::splat(row.decay[0]);
    let n = tile.len();
    let (key, k, q) = (&key[..n], &row.k[..n], &row.q[..n]);
    let d = if CHANNELS { &row.decay[..n] } else { k };
    let (tiles, tile_rest) = tile.as_chunks_mut::<SUMS>();
    let ((keys, key_rest), (ks, k_rest)) = (key.as_chunks::<SUMS>(), k.as_chunks::<SUMS>());
    let ((qs, q_rest), (ds, d_rest)) = (q.as_chunks::<SUMS>(), d.as_chunks::<SUMS>());
    for ((((tile, key), k), q), d) in tiles.iter_mut().zip(keys).zip(ks).zip(qs).zip(ds) {
        for i in 0..SUMS {
            let decay = if CHANNELS { L::splat(d[i]) } else { decay };
            let row = (decay, k[i], q[i]);
            step::<L, FOLD, READ>(&mut tile[i], &mut sums[i], key[i], delta, row);
        }
    }
    for i in 0..tile_rest.len() {
        let decay = if CHANNELS { L::splat(d_rest[i]) } else { decay };
        let row = (decay, k_rest[i], q_rest[i]);
        step::<L, FOLD, READ>(&mut tile_rest[i], &mut sums[i], key_rest[i], delta, row);
    }
    let [mut memory, mut read] = sums[0];
    for more in &sums[1..] {
        (memory, read) = (memory.add(more[0]), read.add(more[1]));
    }
    [memory, read]
}

/// [`sweep`] for one key of the tile; `row` is its decay, key and query.
#[inline(always)]
fn step<L: Lanes, const FOLD: bool, const READ: bool>(
    state: &mut [f32; LANES],
    sums: &mut [L; 2],
    key: f32,
    delta: L,
    (decay, k, q): (L, f32, f32),
) {
    let mut s = L::load(state);
    if FOLD {
        s = L::splat(key).mul_add(delta, s);
    }
    if READ {
        s = s.mul(decay);
        sums[0] = s.mul_add(L::splat(k), sums[0]);
        sums[1] = s.mul_add(L::splat(q), sums[1]);
    }
    s.store(state);
}

/// Lane `l` sums the products `l`, `l + 16`, ..., then lanes fold.
#[inline(always)]
fn dot<L: Lanes>(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sum = load_partial::<L>(a_rest, 0.0).mul(load_partial(b_rest, 0.0));
    for (a, b) in a.iter().zip(b) {
        sum = L::load(a).mul_add(L::load(b), sum);
    }
    sum.sum()
}

#[inline(always)]
fn l2_normalise_body<L: Lanes>(x: &mut [f32], eps: f32, scale: f32) {
    let factor = scale / (dot::<L>(x, x) + eps).sqrt();
    for x in x {
        *x *= factor;
    }
}

/// Length of a step, of what `a` is and what is added.
#[derive(Clone, Copy)]
struct StepTime {
    limits: [f32; 2],
}

impl Pairwise for StepTime {
    #[inline(always)]
    fn of<L: Lanes>(self, a: L, dt: L) -> L {
        let [least, most] = self.limits;
        lower(softplus(a.add(dt)).max(L::splat(least)), L::splat(most))
    }
}

/// Factor of a state, of the length of a step and a rate.
#[derive(Clone, Copy)]
struct Decay;

impl Pairwise for Decay {
    #[inline(always)]
    fn of<L: Lanes>(self, time: L, rate: L) -> L {
        exp(rate.mul(time))
    }
}

#[inline(always)]
fn step_times_body<L: Lanes>(a: &[f32], dt: &[f32], limits: [f32; 2], times: &mut [f32]) {
    times.copy_from_slice(a);
    each_pair::<L>(StepTime { limits }, times, dt);
}

#[inline(always)]
fn decays_body<L: Lanes>(rate: &[f32], times: &mut [f32]) {
    each_pair::<L>(Decay, times, rate);
}

#[cfg(test)]
mod tests;
