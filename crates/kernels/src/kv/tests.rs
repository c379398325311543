use super::*;
use crate::kv::scale::scale_value;
use base::Rng;

/// Keys `[dim][block]` and values `[block][stride]` of a head as f32.
fn unpacked(layout: &KvLayout, head: &[u8]) -> (Vec<f32>, Vec<f32>) {
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let scale = |at: usize| scale_value(u16_at(at));
    let (block, groups, stride) = (layout.block, layout.groups(), layout.value_stride());
    let (start, mut keys, mut values) = (layout.value_start(), Vec::new(), Vec::new());
    let one = |unit: usize, scale_at: usize| match layout.ty {
        KvType::F16 => half::f16::from_bits(u16_at(unit * 2)).to_f32(),
        KvType::Q8_0 => f32::from(head[unit].cast_signed()) * scale(scale_at),
        other => unreachable!("{other:?}"),
    };
    let unit = layout.form().unit;
    for d in 0..layout.dim {
        for slot in 0..block {
            let scale = layout.key_scales() + 2 * (d / GROUP * block + slot);
            keys.push(one(d * block + slot, scale));
        }
    }
    for slot in 0..block {
        for d in 0..stride {
            let scale = start + layout.value_scales() + 2 * (slot * groups + d / GROUP);
            values.push(one(start / unit + slot * stride + d, scale));
        }
    }
    (keys, values)
}

/// The stored values of a filled head of one block, and the values read back: `[block][dim]`.
fn round_trip(ty: KvType, dim: usize, order: &[usize]) -> [Vec<f32>; 4] {
    let layout = KvLayout { ty, block: 32, heads: 1, dim, latent: None };
    let mut rng = Rng::new(dim as u64);
    let mut random = || (0..32 * dim).map(|_| rng.normal()).collect::<Vec<f32>>();
    let (keys, values) = (random(), random());
    let mut head = vec![0; layout.head_bytes()];
    for slot in order {
        let row = slot * dim..(slot + 1) * dim;
        layout.store(&mut head, *slot, &keys[row.clone()], &values[row]);
    }
    let (k, v) = unpacked(&layout, &head);
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

fn check(ty: KvType, tolerance: f32) {
    let ascending: Vec<usize> = (0..32).collect();
    let descending: Vec<usize> = (0..32).rev().collect();
    for dim in [16, 20, 32, 80, 128] {
        let [keys, values, got_k, got_v] = round_trip(ty, dim, &ascending);
        for (want, got) in keys.iter().chain(&values).zip(got_k.iter().chain(&got_v)) {
            assert!((want - got).abs() <= tolerance, "{ty:?} {dim}: {got} is not {want}");
        }
        let [_, _, again_k, again_v] = round_trip(ty, dim, &descending);
        assert_eq!((got_k, got_v), (again_k, again_v), "{ty:?}: the order of storing");
    }
}

#[test]
fn stored_values_read_back_as_closely_as_the_type_allows() {
    check(KvType::F16, 2e-3);
    check(KvType::Q8_0, 0.02);
}

#[test]
fn rows_are_stored_as_one_by_one() {
    let mut rng = Rng::new(3);
    for (ty, dim, latent) in [
        (KvType::Bf16, 128, None),
        (KvType::Bf16, 80, None),
        (KvType::Bf16, 21, None),
        (KvType::Bf16, 96, Some(64)),
        (KvType::F32, 40, None),
        (KvType::Q8_0, 64, None),
    ] {
        let layout = KvLayout { ty, block: 48, heads: 1, dim, latent };
        let apart = dim + 3;
        let mut random = || (0..48 * apart).map(|_| rng.normal()).collect::<Vec<f32>>();
        let (mut keys, values) = (random(), random());
        keys[17 * apart] = f32::NAN;
        let values = if latent.is_some() { &[] } else { &values[..] };
        for slots in [0..48, 16..32, 5..48, 30..33, 16..47, 7..7] {
            let rows = slots.len() * apart;
            let values = &values[..rows.min(values.len())];
            let mut one_by_one = vec![0; layout.head_bytes()];
            for (i, slot) in slots.clone().enumerate() {
                let row = i * apart..i * apart + dim;
                let value = values.get(row.clone()).unwrap_or_default();
                layout.store(&mut one_by_one, slot, &keys[row], value);
            }
            for isa in Isa::available() {
                let mut head = vec![0; layout.head_bytes()];
                layout.store_rows(isa, &mut head, slots.clone(), (&keys[..rows], values), apart);
                assert!(head == one_by_one, "{isa:?} {ty:?} {dim} {slots:?}");
            }
        }
    }
}

#[test]
fn what_is_not_finite_stays_so() {
    let layout = KvLayout { ty: KvType::Q8_0, block: 16, heads: 1, dim: 32, latent: None };
    for bad in [f32::NAN, f32::INFINITY] {
        let mut head = vec![0; layout.head_bytes()];
        let mut key = [1.0; 32];
        key[3] = bad;
        layout.store(&mut head, 2, &key, &key);
        let (keys, values) = unpacked(&layout, &head);
        assert!(!keys[3 * 16 + 2].is_finite() && !values[2 * 32 + 3].is_finite());
        assert_eq!(keys[3 * 16 + 1], 0.0, "another position");
    }
}

#[test]
fn types_of_transposed_layouts_are_listed() {
    let listed = KvType::ALL.into_iter().filter(|ty| ty.is_transposed());
    assert_eq!(listed.collect::<Vec<_>>(), KvType::TRANSPOSED);
}

#[test]
#[should_panic(expected = "fp8 is of plain rows")]
fn a_transposed_layout_has_no_type_of_plain_rows() {
    KvLayout { ty: KvType::Fp8, block: 16, heads: 1, dim: 32, latent: None }.check();
}

#[test]
fn names_are_read_as_they_are_written() {
    for ty in KvType::ALL {
        assert_eq!(ty.name().parse(), Ok(ty));
    }
    let message = "q9".parse::<KvType>().unwrap_err();
    assert!(message.contains("q8_0") && message.contains("q9"), "{message}");
}

#[test]
fn rows_of_positions_without_rows_are_not_present() {
    let plain = Rows::plain(8, None);
    for (position, first, want) in [(0, 0, 0..1), (5, 0, 0..6), (5, 2, 2..6), (2, 2, 2..3)] {
        assert_eq!(plain.present(position, first), want, "{position}, {first}");
    }
    // Those before have their own row alone.
    for (position, want) in [(0, 0..1), (1, 1..2), (2, 2..3)] {
        assert_eq!(plain.present(position, 3), want, "{position}");
    }
    // A row of several positions needs all of them.
    let pooled = Rows { every: 4, ..plain };
    for (position, want) in [(2, 0..0), (3, 0..1), (7, 1..2), (11, 1..3)] {
        assert_eq!(pooled.present(position, 1), want, "{position}");
    }
    assert_eq!(pooled.present(11, 4), 1..3);
}
