//! Forms in which the device holds weights: how words of a row are packed, and the kernels that
//! multiply with them.

use super::pack::{Codes, Pack, RowWords, SpanScales};
use crate::gpu::{Access, Kernel};
use crate::wgsl::params;
use backend::Mode;
use kernels::quant::{BF16, BLOCK, CodeLayout, F16, F32, QuantType, SPAN};

/// What inputs are when they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputForm {
    /// Bytes with a scale for each block.
    Bytes,
    /// f32.
    Floats,
}

impl InputForm {
    /// Words of a row of `cols` inputs.
    pub fn words(self, cols: usize) -> usize {
        let block = match self {
            Self::Bytes => 10,
            Self::Floats => BLOCK,
        };
        cols.div_ceil(SPAN * BLOCK) * SPAN * block
    }
}

/// How rows of weights are held.
#[derive(Debug)]
pub(crate) struct Form {
    /// Name of the layout.
    pub name: &'static str,
    pub inputs: InputForm,
    pub row: RowWords,
    /// For tiles of [`TILE_ROWS`] rows each.
    pub kernels: [Kernel; 3],
}

/// Rows of the tiles of a form's kernels.
pub(crate) const TILE_ROWS: [usize; 3] = [1, 8, 32];

impl Form {
    /// Words of a row of `cols` weights.
    pub fn row_words(&self, cols: usize) -> usize {
        self.row.of(cols)
    }
}

const BINDINGS: &[Access] =
    &[Access::Write, Access::Read, Access::Write, Access::Read, Access::Write];

params! {
    pub(in crate::webgpu) struct ProductParams {
        /// Tiles, or the most there can be where they are planned.
        tiles: u32,
        /// Rows of a group, where tiles are not planned.
        rows: u32,
        /// Blocks of 32 inputs, and outputs of a group.
        blocks: u32,
        outputs: u32,
        /// Words of a row of weights, and of a row of inputs.
        weights_row: u32,
        inputs_row: u32,
        /// Input rows from a row to the next, and from a group to the next.
        row_step: u32,
        group_step: u32,
        /// Words of a row of outputs, first word, and words from a group to the next.
        out_row: u32,
        out_first: u32,
        out_group: u32,
        /// Where the table of groups begins: chunk of memory and first word of the weights of each.
        table_at: u32,
        /// The chunk that is bound.
        chunk: u32,
        /// Where planned tiles begin, or NONE: group, first row, rows.
        tiles_at: u32,
        /// Where the input row of each planned row is found, or NONE if it is the same.
        rows_at: u32,
        /// Invocations that share an output where there are few rows: a power of two.
        span_lanes: u32,
    }
}

/// A part of the source of products.
macro_rules! part {
    ($name:literal) => {
        include_str!(concat!("../../shaders/products/", $name, ".wgsl"))
    };
}

/// The kernels of a form from the parts of its source.
macro_rules! kernels {
    ($name:literal, $($part:expr),*) => {[
        Kernel {
            name: concat!("product of one row, ", $name),
            source: &["const ROWS = 1u;\n", ProductParams::WGSL, part!("product"), $($part,)* part!("few")],
            bindings: BINDINGS,
        },
        Kernel {
            name: concat!("product of few rows, ", $name),
            source: &["const ROWS = 8u;\n", ProductParams::WGSL, part!("product"), $($part,)* part!("few")],
            bindings: BINDINGS,
        },
        Kernel {
            name: concat!("product of many rows, ", $name),
            source: &["const ROWS = 32u;\n", ProductParams::WGSL, part!("product"), $($part,)* part!("many")],
            bindings: BINDINGS,
        },
    ]};
}

macro_rules! floats {
    ($form:ident, $name:literal, $words:literal, $pack:ident, $values:literal) => {
        static $form: Form = Form {
            name: $name,
            inputs: InputForm::Floats,
            row: RowWords { scale_words: 0, block_words: $words, pack: Pack::$pack },
            kernels: kernels!($name, part!($values), part!("floats")),
        };
    };
}

floats!(FLOATS_32, "f32", 32, F32, "values_f32");
floats!(FLOATS_16, "f16", 16, F16, "values_f16");
floats!(BRAIN_16, "bf16", 16, Bf16, "values_bf16");

/// Codes: words of a block, how they are packed, constants and source.
macro_rules! codes {
    (bytes) => { (8, Codes::Bytes, "", part!("codes_bytes")) };
    (four) => { codes!(nibbles 4, Codes::Four, "const HIGH = 0u; const OFFSET = 0;\n") };
    (four_8) => { codes!(nibbles 4, Codes::Four, "const HIGH = 0u; const OFFSET = 8;\n") };
    (five) => { codes!(nibbles 5, Codes::Five, "const HIGH = 1u; const OFFSET = 0;\n") };
    (five_16) => { codes!(nibbles 5, Codes::Five, "const HIGH = 1u; const OFFSET = 16;\n") };
    (six_32) => { codes!(nibbles 6, Codes::Six, "const HIGH = 2u; const OFFSET = 32;\n") };
    (two) => { codes!(two 2, Codes::Two, "const HIGH = 0u; const OFFSET = 0;\n") };
    (two_1) => { codes!(two 2, Codes::Two, "const HIGH = 0u; const OFFSET = 1;\n") };
    (signs) => { codes!(two 2, Codes::Signs, "const HIGH = 0u; const OFFSET = 1;\n") };
    (three_4) => { codes!(two 3, Codes::Three, "const HIGH = 1u; const OFFSET = 4;\n") };
    // -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.
    (levels) => { codes!(
        levels 4,
        "const LEVELS = array(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);\n"
    ) };
    // 0, 1, 2, 3, 4, 6, 8, 12, then the same, negated.
    (floats) => { codes!(
        levels 4,
        "const LEVELS = array(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);\n"
    ) };
    (nibbles $words:literal, $codes:expr, $constants:literal) => {
        ($words, $codes, $constants, part!("codes_nibbles"))
    };
    (two $words:literal, $codes:expr, $constants:literal) => {
        ($words, $codes, $constants, part!("codes_two"))
    };
    (levels $words:literal, $constants:literal) => {
        ($words, Codes::Four, $constants, part!("codes_levels"))
    };
}

/// Scales: words of a span, how they are packed, constants and source.
macro_rules! scales {
    (each) => {
        (4, SpanScales::Each, "", part!("scales_each"))
    };
    (powers) => {
        (4, SpanScales::Each, "", part!("scales_powers"))
    };
    (each_min) => {
        (8, SpanScales::EachMin, "", part!("scales_each_min"))
    };
    (zeros) => {
        (12, SpanScales::Zeros, "", part!("scales_zeros"))
    };
    (shared_2) => {
        (4, SpanScales::Shared(2), "", part!("scales_each"))
    };
    (shared_4) => {
        (4, SpanScales::Shared(4), "", part!("scales_each"))
    };
    (runs) => {
        (5, SpanScales::Runs, "", part!("scales_e4m3"))
    };
    (e4m3) => {
        (5, SpanScales::E4m3, "", part!("scales_e4m3"))
    };
    (under) => {
        scales!(3, 2, false, false)
    };
    (under_halves) => {
        scales!(5, 4, true, false)
    };
    (under_min) => {
        scales!(5, 2, false, true)
    };
    (under_halves_min) => {
        scales!(9, 4, true, true)
    };
    ($words:literal, $steps:literal, $halves:literal, $minima:literal) => {
        (
            $words,
            SpanScales::Under { halves: $halves, minima: $minima },
            concat!(
                "const HALVES = ",
                $halves,
                ";\nconst MINIMA = ",
                $minima,
                ";\n",
                "const STEP_WORDS = ",
                $steps,
                "u;\nconst SCALE_WORDS = ",
                $words,
                "u;\n"
            ),
            part!("scales_under"),
        )
    };
}

/// Forms of codes and their scales.
macro_rules! packed {
    ($($form:ident $name:literal $layout:ident: $codes:ident, $scales:ident;)*) => {
        $(static $form: Form = Form {
            name: "int8",
            inputs: InputForm::Bytes,
            row: RowWords {
                scale_words: scales!($scales).0,
                block_words: codes!($codes).0,
                pack: Pack::Codes(codes!($codes).1, scales!($scales).1),
            },
            kernels: kernels!(
                $name,
                codes!($codes).2,
                codes!($codes).3,
                scales!($scales).2,
                scales!($scales).3,
                part!("bytes")
            ),
        };)*

        /// The form of a code layout; entries of codebooks have none.
        fn packed(layout: CodeLayout) -> Option<&'static Form> {
            match layout {
                $(CodeLayout::$layout => Some(&$form),)*
                CodeLayout::Iq1S
                | CodeLayout::Iq1M
                | CodeLayout::Iq2Xxs
                | CodeLayout::Iq2Xs
                | CodeLayout::Iq2S
                | CodeLayout::Iq3Xxs
                | CodeLayout::Iq3S => None,
            }
        }
    };
}

packed! {
    BYTES "bytes" Bytes: bytes, each;
    FOUR "four" Four: four_8, each;
    FOUR_MIN "four-min" FourMin: four, each_min;
    FIVE "five" Five: five_16, each;
    FIVE_MIN "five-min" FiveMin: five, each_min;
    LEVELS "levels" Levels: levels, each;
    FLOATS "floats" Floats: floats, powers;
    SUPER_TWO_MIN "super-two-min" SuperTwoMin: two, under_halves_min;
    SUPER_THREE "super-three" SuperThree: three_4, under_halves;
    SUPER_FOUR_MIN "super-four-min" SuperFourMin: four, under_min;
    SUPER_FIVE_MIN "super-five-min" SuperFiveMin: five, under_min;
    SUPER_SIX "super-six" SuperSix: six_32, under_halves;
    SUPER_LEVELS "super-levels" SuperLevels: levels, under;
    TERNARY "ternary" Ternary: two_1, under;
    FOUR_ZERO "four-zero" FourZero: four, zeros;
    BYTES_ZERO "bytes-zero" BytesZero: bytes, zeros;
    SUPER_FLOATS "super-floats" SuperFloats: floats, e4m3;
    SIGNS "signs" Signs: signs, shared_4;
    TWO "two" Two: two_1, shared_2;
    RUN_FLOATS "run-floats" RunFloats: floats, runs;
}

/// The form of weights of a type with rows of `cols`, for products in `mode`.
pub(crate) fn form(ty: &QuantType, cols: usize, mode: Mode) -> &'static Form {
    let packing = ty.packing.filter(|_| mode == Mode::Fast && cols.is_multiple_of(BLOCK));
    match packing.and_then(|packing| packed(packing.code_layout)) {
        Some(form) => form,
        None if *ty == F32 => &FLOATS_32,
        None if *ty == F16 => &FLOATS_16,
        None if *ty == BF16 || mode == Mode::Fast => &BRAIN_16,
        None => &FLOATS_32,
    }
}
