//! How the values of a type lie in a quant block, and the kernels that restore and store blocks.

use crate::isa::Isa;
use crate::lanes::widen::Widen;
use crate::lanes::{Kernel, run_on};
use crate::quant::fit::{WeightedBlock, bounded, relative};
use crate::quant::packing::Packing;
use std::marker::PhantomData;

/// How a type stores values in a quant block.
pub(super) trait BlockFormat<const LEN: usize, const BYTES: usize> {
    /// How blocks are packed, if there are products with their codes.
    const PACKING: Option<&'static Packing> = None;

    /// Restores the values of `block`. `#[inline(always)]`, so that it is compiled for the
    /// instruction set of its caller.
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]);

    /// Stores `values` in `block`, which is zero. `#[inline(always)]` as well.
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]);
}

/// Restores whole quant blocks with the instructions that the CPU has.
pub(super) fn dequantize<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    src: &[u8],
    dst: &mut [f32],
) {
    run_on(isa(), RestoreBlocks::<F, LEN, BYTES> { src, dst, format: PhantomData });
}

struct RestoreBlocks<'a, F, const LEN: usize, const BYTES: usize> {
    src: &'a [u8],
    dst: &'a mut [f32],
    format: PhantomData<F>,
}

impl<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize> Kernel
    for RestoreBlocks<'_, F, LEN, BYTES>
{
    #[inline(always)]
    fn run<L: Widen>(self) {
        for (block, out) in self.src.as_chunks().0.iter().zip(self.dst.as_chunks_mut().0) {
            F::restore::<L>(block, out);
        }
    }
}

/// Stores whole quant blocks with the instructions that the CPU has.
pub(super) fn quantize<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    src: &[f32],
    importance: Option<&[f32]>,
    dst: &mut [u8],
) {
    run_on(isa(), QuantizeBlocks::<F, LEN, BYTES> { src, importance, dst, format: PhantomData });
}

/// The instruction set to use.
pub(super) fn isa() -> Isa {
    #[cfg(test)]
    if let Some(forced) = super::tests::FORCED.get() {
        return forced;
    }
    Isa::detect().unwrap_or(Isa::SCALAR)
}

struct QuantizeBlocks<'a, F, const LEN: usize, const BYTES: usize> {
    src: &'a [f32],
    importance: Option<&'a [f32]>,
    dst: &'a mut [u8],
    format: PhantomData<F>,
}

impl<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize> Kernel
    for QuantizeBlocks<'_, F, LEN, BYTES>
{
    #[inline(always)]
    fn run<L: Widen>(self) {
        let (blocks, out) = (self.src.as_chunks::<LEN>().0, self.dst.as_chunks_mut::<BYTES>().0);
        for (index, (values, out)) in blocks.iter().zip(out).enumerate() {
            let weights = match self.importance {
                Some(all) => relative(&all[index * LEN..][..LEN]),
                None => [1.0; LEN],
            };
            out.fill(0);
            F::store(&WeightedBlock { values: values.map(bounded), weights }, out);
        }
    }
}
