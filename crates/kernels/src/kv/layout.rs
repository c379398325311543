//! Types of cached keys and values, and the sizes of the transposed layout.

/// Largest key of a head: a latent row of 512 and the 64 rotated values after it, and some.
pub const MAX_HEAD_DIM: usize = 640;

/// Positions of a span, which blocks divide; see [`attention`](crate::attention).
pub const SPAN: usize = 512;

/// Values that share a scale in quantised types.
pub(crate) const GROUP: usize = 32;

/// Heads of blocks begin at whole cache lines.
pub(super) const ALIGN: usize = 64;

/// Storage type of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 4 bytes a value.
    F32,
    /// 2 bytes a value, the range of f32.
    Bf16,
    /// 2 bytes a value, more digits and less range.
    F16,
    /// 8 bits a value, and a scale for every 32; in transposed layouts only.
    Q8_0,
    /// The codes and scales of values that are rounded before they are cached, 8 or 4 bits a
    /// value; in plain rows only.
    Fp8,
}

/// What a type is.
pub(super) struct Format {
    pub(super) name: &'static str,
    /// How the type lies in the transposed layout, if it can.
    pub(super) transposed: Option<Transposed>,
}

/// A type in the transposed layout.
pub(super) struct Transposed {
    /// Bytes of a unit: what kernels multiply at once in a lane.
    pub(super) unit: usize,
    /// Values in a unit: neighbours of the head in a key, of two positions in values.
    pub(super) width: usize,
    /// Whether there is a scale of two bytes for every [`GROUP`] values of a head.
    pub(super) scaled: bool,
    /// Stores the `dim` values of one head's key, or value, at a slot of the head's bytes.
    pub(super) store_key: fn(&KvLayout, &mut [u8], usize, &[f32]),
    pub(super) store_value: fn(&KvLayout, &mut [u8], usize, &[f32]),
}

/// Sizes of one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// How values are stored; one of [`KvType::TRANSPOSED`].
    pub ty: KvType,
    /// Positions in a block; a multiple of 16 that divides [`SPAN`].
    pub block: usize,
    /// KV heads.
    pub heads: usize,
    /// Values of a key, at most [`MAX_HEAD_DIM`].
    pub dim: usize,
    /// Values are the leading inputs of each key, and only keys are stored (latent attention);
    /// `None` where every position has values of its own, as many as a key's.
    pub latent: Option<usize>,
}
