use super::*;
use crate::Isa;
use crate::lanes::isa_dispatch;

fn loads_body<L: Widen>(bytes: &[u8; 64], out: &mut Vec<u32>) {
    let at = bytes.as_ptr();
    // SAFETY: no load takes more than 64 bytes.
    let (pairs, halves, signed) = unsafe {
        let pairs = L::load_bf16_pairs_at(at.cast());
        (pairs, L::load_f16_at(at.cast()), L::load_i8_at(at.cast()))
    };
    // SAFETY: sixteen codes.
    let codes = unsafe { L::load_e4m3_at(at) };
    // SAFETY: no load takes more than 64 bytes.
    let nibbles = [0, 4].map(|shift| unsafe { L::load_nibbles_at(at, shift) });
    // SAFETY: sixteen pairs of codes.
    let code_pairs = unsafe { L::load_e4m3_pairs_at(at.cast()) };
    let pairs_of_codes = [code_pairs.0, code_pairs.1];
    let all = [pairs.0, pairs.1, halves, signed, codes, nibbles[0], nibbles[1]];
    for lanes in all.into_iter().chain(pairs_of_codes) {
        let mut values = [0.0; LANES];
        lanes.store(&mut values);
        // Any NaN is as good as another.
        let quiet = |v: f32| if v.is_nan() { f32::NAN } else { v };
        out.extend(values.iter().map(|v| quiet(*v).to_bits()));
    }
}

isa_dispatch! {
    fn loads(bytes: &[u8; 64], out: &mut Vec<u32>) = loads_body
}

proptest::proptest! {
    #[test]
    fn every_isa_widens_as_scalar_does(seed: u64) {
        let mut rng = base::Rng::new(seed);
        let bytes = std::array::from_fn(|_| rng.below(256) as u8);
        let mut want = Vec::new();
        loads(Isa::SCALAR, &bytes, &mut want);
        for isa in Isa::available() {
            let mut got = Vec::new();
            loads(isa, &bytes, &mut got);
            assert_eq!(got, want, "{isa:?}");
        }
    }
}

fn slices_body<L: Widen>(bytes: &[u8], out: &mut [[f32; 37]; 3]) {
    bf16_values::<L>(bytes, &mut out[0]);
    f16_values::<L>(bytes, &mut out[1]);
    e4m3_values::<L>(&bytes[..37], 0.25, &mut out[2]);
}

isa_dispatch! {
    fn slices(bytes: &[u8], out: &mut [[f32; 37]; 3]) = slices_body
}

#[test]
fn slices_of_any_length_have_the_values_of_their_formats() {
    let bytes: Vec<u8> = (0..74u32).map(|i| (i * 11 % 120) as u8).collect();
    for isa in Isa::available() {
        let mut out = [[f32::NAN; 37]; 3];
        slices(isa, &bytes, &mut out);
        for (i, pair) in bytes.as_chunks::<2>().0.iter().enumerate() {
            assert_eq!(out[0][i], half::bf16::from_le_bytes(*pair).to_f32(), "{isa:?}");
            assert_eq!(out[1][i], f16::from_le_bytes(*pair).to_f32(), "{isa:?}");
            assert_eq!(out[2][i], 0.25 * crate::quant::fp8::value(bytes[i]), "{isa:?}");
        }
    }
}

#[test]
fn bytes_and_halves_of_pairs_are_where_they_belong() {
    let mut bytes = [0; 64];
    (bytes[0], bytes[1]) = (0x2f, 0xff);
    bytes[2..4].copy_from_slice(&half::bf16::from_f32(3.0).to_le_bytes());
    let mut out = Vec::new();
    loads(Isa::SCALAR, &bytes, &mut out);
    let lane = |group: usize, lane: usize| f32::from_bits(out[group * LANES + lane]);
    assert_eq!(lane(1, 0), 3.0, "high half of the first pair");
    assert_eq!((lane(3, 0), lane(3, 1)), (47.0, -1.0), "signed bytes");
    assert_eq!((lane(5, 0), lane(6, 0), lane(6, 1)), (15.0, 2.0, 15.0), "nibbles");
}
