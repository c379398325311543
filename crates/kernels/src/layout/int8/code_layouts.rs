//! The planes and scales of each code layout.

/// Runs `$body` with the planes and scales of a form named `$p` and `$s`.
macro_rules! with_code_layout {
    ($layout:expr, $p:ident, $s:ident => $body:expr) => {{
        use $crate::layout::int8::parts::{
            Each, Nibbles, Odd, SignedBytes, Table, Ternary, TwoBits, Under, UnderFactor, Zeros,
        };
        use $crate::layout::int8::entries::{Eights, Fours, MovedEights};
        use $crate::layout::int8::wide::{Runs, SharedScale, Signs};
        use $crate::quant::CodeLayout;
        macro_rules! run {
            ($planes:ty, $scales:ty) => {{
                type $p = $planes;
                type $s = $scales;
                $body
            }};
        }
        match $layout {
            CodeLayout::Bytes => run!(SignedBytes, Each<false, false>),
            CodeLayout::Four => run!(Nibbles<0, 3>, Each<false, false>),
            CodeLayout::FourMin => run!(Nibbles<0, 0>, Each<true, false>),
            CodeLayout::Five => run!(Nibbles<1, 4>, Each<false, false>),
            CodeLayout::FiveMin => run!(Nibbles<1, 0>, Each<true, false>),
            CodeLayout::Levels => run!(Table<false>, Each<false, false>),
            CodeLayout::Floats => run!(Table<true>, Each<false, true>),
            CodeLayout::SuperTwoMin => run!(TwoBits<0, 0>, Under<true, true>),
            CodeLayout::SuperThree => run!(TwoBits<1, 2>, Under<true, false>),
            CodeLayout::SuperFourMin => run!(Nibbles<0, 0>, Under<false, true>),
            CodeLayout::SuperFiveMin => run!(Nibbles<1, 0>, Under<false, true>),
            CodeLayout::SuperSix => run!(Nibbles<2, 5>, Under<true, false>),
            CodeLayout::SuperLevels => run!(Table<false>, Under<false, false>),
            CodeLayout::Ternary => run!(Ternary, Under<false, false>),
            CodeLayout::FourZero => run!(Nibbles<0, 0>, Zeros<true>),
            CodeLayout::BytesZero => run!(SignedBytes, Zeros<false>),
            CodeLayout::SuperFloats => run!(Table<true>, UnderFactor),
            CodeLayout::Signs => run!(Signs, SharedScale<4>),
            CodeLayout::Two => run!(Ternary, SharedScale<2>),
            CodeLayout::RunFloats => run!(Table<true>, Runs),
            CodeLayout::Iq1S => run!(MovedEights, Odd<false, 1>),
            CodeLayout::Iq1M => run!(MovedEights, Odd<true, 1>),
            CodeLayout::Iq2Xxs => run!(Eights<8>, Odd<false, 1>),
            CodeLayout::Iq2Xs => run!(Eights<9>, Odd<true, 1>),
            CodeLayout::Iq2S => run!(Eights<10>, Odd<true, 1>),
            CodeLayout::Iq3Xxs => run!(Fours<8>, Odd<false, 2>),
            CodeLayout::Iq3S => run!(Fours<9>, Odd<false, 8>),
        }
    }};
}
pub(super) use with_code_layout;
