//! What decides the bits of a product besides its operands.

use crate::isa::Isa;
use crate::layout::{Activations, Layout};
use std::collections::BTreeSet;

/// What decides the bits of a product besides its operands: equal ones give equal bits on every
/// instruction set that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arithmetic {
    /// Exact sums of bytes, whose scales are applied in ascending blocks.
    Bytes,
    /// Sums of f32 by fused multiply-adds in the order of the layout.
    F32,
    /// Dot products of BF16 pairs with AVX-512, which round as the CPU does.
    Bf16Pairs,
    /// Products of BF16 tiles with AMX, which round and add as the CPU does.
    Bf16Tiles,
}

impl Arithmetic {
    /// Name in traces, cache folders and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::F32 => "f32",
            Self::Bf16Pairs => "bf16-pairs",
            Self::Bf16Tiles => "bf16-tiles",
        }
    }

    /// Whether every CPU has it.
    pub fn is_portable(self) -> bool {
        matches!(self, Self::Bytes | Self::F32)
    }

    /// Whether every CPU has what `name` stands for, a name that [`name_of_all`](Self::name_of_all)
    /// gave.
    pub fn is_portable_name(name: &str) -> bool {
        let portable = [Self::Bytes, Self::F32].map(Self::name);
        name.split('+').all(|part| portable.contains(&part))
    }

    /// The name of the arithmetic of a model, whose products have these. Norms, attention and all
    /// else but products are f32, so that every model has that.
    pub fn name_of_all(products: &BTreeSet<Self>) -> String {
        let all: BTreeSet<_> = products.iter().chain(&[Self::F32]).collect();
        all.iter().map(|it| it.name()).collect::<Vec<_>>().join("+")
    }
}

impl Layout {
    /// What decides the bits of this layout's products on `isa`.
    pub fn arithmetic(&self, isa: Isa) -> Arithmetic {
        match self.activations {
            Activations::F32 | Activations::F32Panels => Arithmetic::F32,
            Activations::Int8 => Arithmetic::Bytes,
            Activations::Bf16 if isa.has_tiles() => Arithmetic::Bf16Tiles,
            Activations::Bf16 => Arithmetic::Bf16Pairs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{STORED, packed};
    use crate::quant::TYPES;

    #[test]
    fn portable_instruction_sets_have_portable_arithmetic_of_all_types() {
        for isa in Isa::available() {
            let portable = isa.portable();
            assert_eq!(portable, portable.portable());
            assert_eq!(isa == portable, !isa.has_bf16_dot(), "{isa:?}");
            for ty in TYPES {
                let layout = packed(ty, 4096, portable).unwrap_or(&STORED);
                assert!(layout.arithmetic(portable).is_portable(), "{ty} on {portable:?}");
            }
        }
    }

    #[test]
    fn layouts_of_portable_arithmetic_are_those_of_every_instruction_set() {
        for ty in TYPES {
            let on = |isa: Isa| packed(ty, 4096, isa.portable()).map(|layout| layout.name);
            let all = Isa::available();
            assert!(all.iter().all(|isa| on(*isa) == on(Isa::SCALAR)), "{ty}");
        }
    }

    #[test]
    fn a_model_is_named_by_what_its_products_have() {
        let name = |all: &[Arithmetic]| Arithmetic::name_of_all(&all.iter().copied().collect());
        assert_eq!(name(&[]), "f32");
        assert_eq!(name(&[Arithmetic::F32, Arithmetic::Bytes]), "bytes+f32");
        assert_eq!(name(&[Arithmetic::Bf16Tiles, Arithmetic::Bytes]), "bytes+f32+bf16-tiles");
        for portable in ["f32", "bytes+f32"] {
            assert!(Arithmetic::is_portable_name(portable), "{portable}");
        }
        for other in ["bytes+f32+bf16-tiles", "bf16-pairs", "wgpu-vulkan-llvmpipe", ""] {
            assert!(!Arithmetic::is_portable_name(other), "{other}");
        }
    }
}
