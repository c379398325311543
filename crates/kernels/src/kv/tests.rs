use super::*;
use base::Rng;

fn unpacked<T: Unpack>(layout: &KvLayout, head: &[u8]) -> (Vec<f32>, Vec<f32>) {
    use crate::lanes::scalar::Scalar;
    let mut keys = vec![f32::NAN; layout.value_stride() * layout.block];
    let mut values = keys.clone();
    T::keys::<Scalar>(layout, head, &mut keys, head.as_ptr());
    T::values::<Scalar>(layout, head, layout.block, &mut values, head.as_ptr());
    (keys, values)
}

/// What a filled head of one block reads as, beside what was stored: `[block][dim]`.
fn round_trip<T: Unpack>(ty: KvType, dim: usize, order: &[usize]) -> [Vec<f32>; 4] {
    let layout = KvLayout { ty, block: 32, heads: 1, dim };
    let mut rng = Rng::new(dim as u64);
    let mut random = || (0..32 * dim).map(|_| rng.normal()).collect::<Vec<f32>>();
    let (keys, values) = (random(), random());
    let mut head = vec![0; layout.head_bytes()];
    for slot in order {
        let row = slot * dim..(slot + 1) * dim;
        layout.store(&mut head, *slot, &keys[row.clone()], &values[row]);
    }
    let (k, v) = unpacked::<T>(&layout, &head);
    let at = |slot: usize, d: usize| (k[d * 32 + slot], v[slot * layout.value_stride() + d]);
    let (mut got_k, mut got_v) = (Vec::new(), Vec::new());
    for slot in 0..32 {
        for d in 0..dim {
            let (k, v) = at(slot, d);
            got_k.push(k);
            got_v.push(v);
        }
    }
    [keys, values, got_k, got_v]
}

fn check<T: Unpack>(ty: KvType, tolerance: f32) {
    let ascending: Vec<usize> = (0..32).collect();
    let descending: Vec<usize> = (0..32).rev().collect();
    for dim in [16, 20, 32, 80, 128] {
        let [keys, values, got_k, got_v] = round_trip::<T>(ty, dim, &ascending);
        for (want, got) in keys.iter().chain(&values).zip(got_k.iter().chain(&got_v)) {
            assert!((want - got).abs() <= tolerance, "{ty:?} {dim}: {got} is not {want}");
        }
        let [_, _, again_k, again_v] = round_trip::<T>(ty, dim, &descending);
        assert_eq!((got_k, got_v), (again_k, again_v), "{ty:?}: the order of storing");
    }
}

#[test]
fn stored_values_read_back_as_closely_as_the_type_allows() {
    check::<F16>(KvType::F16, 2e-3);
    check::<Q8_0>(KvType::Q8_0, 0.02);
}

#[test]
fn what_is_not_finite_stays_so() {
    let layout = KvLayout { ty: KvType::Q8_0, block: 16, heads: 1, dim: 32 };
    for bad in [f32::NAN, f32::INFINITY] {
        let mut head = vec![0; layout.head_bytes()];
        let mut key = [1.0; 32];
        key[3] = bad;
        layout.store(&mut head, 2, &key, &key);
        let (keys, values) = unpacked::<Q8_0>(&layout, &head);
        assert!(!keys[3 * 16 + 2].is_finite() && !values[2 * 32 + 3].is_finite());
        assert_eq!(keys[3 * 16 + 1], 0.0, "another position");
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    for ty in KvType::ALL {
        assert_eq!(ty.name().parse(), Ok(ty));
    }
    let message = "q9".parse::<KvType>().unwrap_err();
    assert!(message.contains("q8_0") && message.contains("q9"), "{message}");
}
