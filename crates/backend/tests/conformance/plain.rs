//! Rounding of plain rows.

use crate::on_every_device;
use backend::{HeadColumns, Rounding};

#[test]
fn heads_are_rounded_to_equal_values() {
    on_every_device(8, |pair| {
        let (rows, heads) = (pair.number(1, 9), pair.number(1, 5));
        let power = 1 << pair.number(0, 10);
        let any = pair.number(1, 600);
        let rotated = pair.number(0, any.min(70));
        for (rounding, width) in [
            (Rounding::Fp8 { rotated }, any),
            (Rounding::Fp8 { rotated: 0 }, any),
            (Rounding::Fp4, power),
            (Rounding::None, any),
        ] {
            let (first, stride) = (pair.number(0, 5), width + pair.number(0, 5));
            let columns = first + heads * stride;
            let x = pair.buffer(rows, columns);
            let mut values = pair.values(rows * columns);
            for value in &mut values {
                // Blocks of all sizes, and zeros.
                *value *= [0.0, 1e-6, 1.0, 1.0, 3e4][pair.number(0, 4)];
            }
            if pair.number(0, 3) == 0 {
                values.iter_mut().for_each(|value| *value *= 2e33);
            }
            pair.both(|backend| backend.update(x, rows, &mut |to| to.copy_from_slice(&values)));
            let heads = HeadColumns { buffer: x, first, stride };
            pair.both(|backend| backend.round(heads, width, rounding, rows));
            let [want, got] = pair.read(x, rows).map(|x| x.into_iter().map(f32::to_bits));
            for (at, (want, got)) in want.zip(got).enumerate() {
                let device = pair.tested.device().name;
                let values = [want, got].map(f32::from_bits);
                assert!(want == got, "{device}: {rounding:?} of {width}: value {at}: {values:?}");
            }
        }
    });
}
