//! States in several parts, which only the inside shows.

use crate::adapter::open_for_tests;
use crate::webgpu::WebGpu;
use crate::webgpu::held::states::States;
use backend::{
    Batch, Buffer, Cache, CacheSpec, Executor, KvType, LayerCache, Operations, RecurrenceRule,
    RecurrenceSpec, State, StateRows, Weights,
};

const STATE: State = State { heads: 6, key_heads: 2, keys: 20, values: 30, channel_decay: false };
/// Rows of each of the steps.
const ROWS: usize = 7;

fn filled(gpu: &mut WebGpu, width: usize, seed: usize) -> Buffer {
    let buffer = gpu.buffer(ROWS, width).unwrap();
    gpu.update(buffer, ROWS, &mut |to| {
        let value = |at: usize| ((at * 7 + seed * 13 + 1) as f32 * 0.7).sin();
        to.iter_mut().enumerate().for_each(|(at, to)| *to = value(at));
    });
    buffer
}

/// Outputs of two steps, the second in a copied slot, with parts of `most` words.
fn outputs(most: usize) -> Option<(usize, Vec<f32>)> {
    let mut gpu = open_for_tests()?;
    let layers = [LayerCache { rows: Vec::new(), state: Some(STATE) }];
    let (groups, states, guesses) = (&[], 3, 2);
    let spec = CacheSpec { layers: &layers, block: 16, groups, states, guesses, ty: KvType::F32 };
    gpu.cache(&spec).unwrap();
    let bytes = gpu.state_bytes(&STATE) + STATE.waiting_bytes(guesses);
    assert_eq!(gpu.memory().states, states * bytes);
    gpu.states = States::in_parts(&mut gpu.gpu, &spec, most).unwrap();
    assert_eq!(gpu.memory().states, states * bytes);
    let parts = gpu.states.layers[0].as_ref().unwrap().parts.len();
    let keys = STATE.key_heads * STATE.keys;
    let widths = [keys, keys, STATE.heads * STATE.values, STATE.heads, STATE.heads];
    let mut all = Vec::new();
    for (slot, position, right, guesses) in [(0, 0, 0, 2), (1, ROWS - 1, 1, 0)] {
        let mut seed = position;
        let inputs = widths.map(|width| {
            seed += 1;
            filled(&mut gpu, width, seed)
        });
        let out = filled(&mut gpu, STATE.heads * STATE.values, 9);
        let [q, k, v, a, b] = inputs;
        let (decay, beta) = (filled(&mut gpu, STATE.heads, 7), filled(&mut gpu, STATE.heads, 8));
        let dt = gpu.vector(vec![0.3; STATE.heads]);
        let rate = gpu.vector(vec![-0.4; STATE.heads]);
        let rule = RecurrenceRule::Delta { b, least: None };
        let spec = RecurrenceSpec { rule, q, k, v, a, dt, rate, decay, beta, tiled: true, out };
        let mut batch = Batch::with_capacity(ROWS, 0, 0);
        batch.push([&[0; ROWS], &[]], position, 1);
        batch.state(StateRows { slot: 0, right, guesses });
        if position == 0 {
            batch.save(ROWS - 3, 2);
        }
        gpu.begin(&batch);
        gpu.recur(0, &spec, &batch);
        gpu.copy_states(&[(2, 1), (1, slot)]);
        gpu.fetch(out, ROWS);
        gpu.end().unwrap();
        all.extend_from_slice(gpu.read(out, ROWS));
    }
    Some((parts, all))
}

#[test]
fn parts_do_not_change_bits() {
    let Some((parts, whole)) = outputs(usize::MAX) else { return };
    assert_eq!(parts, 1);
    assert!(whole.iter().all(|value| value.is_finite()));
    let head = 3 * STATE.keys * STATE.values;
    for (heads, parts) in [(1, 6), (2, 3), (4, 2)] {
        assert_eq!(outputs(heads * head).unwrap(), (parts, whole.clone()), "{heads} heads");
    }
}
