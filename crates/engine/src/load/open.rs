//! What options come to before weights are loaded: the device, the placement of each tensor, the
//! rows of a batch and the type of cached rows.

use super::error::Error;
use super::options::LoadOptions;
use backend::{Backend, Bits, CPU, DeviceChoice, DeviceOptions, KvType};
use formats::{Checkpoint, ModelConfig};
use models::WorkspaceLimits;
use models::placement::{Placed, Placement, TensorInfo, digest};

/// Positions that attention sums at once; a multiple of the block size.
const SPAN: usize = 512;
/// Maximum number of threads.
pub const MAX_THREADS: usize = 1024;

/// The most prompt tokens of a step, and the most rows of a batch.
///
/// # Errors
///
/// [`Error::Block`] if kernels do not support the blocks.
pub(super) fn limits(
    config: &ModelConfig,
    options: &LoadOptions,
    chunk: usize,
) -> Result<(usize, WorkspaceLimits), Error> {
    let LoadOptions { block, context, .. } = *options;
    if block == 0 || !block.is_multiple_of(16) || !SPAN.is_multiple_of(block) {
        return Err(Error::Block(block));
    }
    // No prompt exceeds the context.
    let context = context.unwrap_or(config.context).max(1);
    let chunk = if config.is_encoder() { chunk.max(1) } else { chunk.clamp(1, context) };
    let logit_rows = options.logit_rows.max(1);
    // The texts of an encoder are not cut.
    let most = if config.is_encoder() { chunk.max(context) } else { chunk };
    // A whole chunk and all sequences that decode.
    Ok((chunk, WorkspaceLimits { rows: most.saturating_add(logit_rows), logit_rows }))
}

/// What to say of options that the device does not follow: a limit of a GPU's memory where none
/// computes, and portable bits of anything but a CPU.
pub(super) fn without_effect(options: &LoadOptions, backend: &dyn Backend) -> Vec<String> {
    let device = backend.device();
    let is_idle = options.device_memory.is_some() && !device.is_gpu;
    let of_memory = is_idle.then(|| "--device-memory has no effect: no GPU computes".to_owned());
    let has_own_bits = options.bits == Bits::Portable && *device != CPU;
    let of_bits = has_own_bits.then(|| {
        format!("--bits portable has no effect: device {} has bits of its own", device.name)
    });
    of_memory.into_iter().chain(of_bits).collect()
}

/// Opens the device that `options` choose.
pub(super) fn open(options: &LoadOptions) -> Result<Box<dyn Backend>, Error> {
    let threads = match options.threads {
        0 => {
            let all = std::thread::available_parallelism().map_or(1, usize::from);
            (all / options.ranks.on_cpus()).max(1)
        }
        threads if threads <= MAX_THREADS => threads,
        threads => return Err(Error::Threads { threads, most: MAX_THREADS }),
    };
    let LoadOptions { pin, numa, mode, bits, device_memory: memory, .. } = *options;
    let DeviceChoice { device, which } = &options.device;
    let which = which.as_deref();
    Ok((device.open)(&DeviceOptions { threads, pin, numa, mode, bits, which, memory })?)
}

/// Returns the placement of each tensor, and a digest of what `rules` change in it.
pub(super) fn place(
    checkpoint: &Checkpoint,
    backend: &dyn Backend,
    rules: Option<&Placement>,
) -> Result<(Vec<Placed>, String), Error> {
    let tensors = TensorInfo::all(checkpoint);
    let built_in = Placement::default().resolve(&tensors, backend)?;
    let Some(rules) = rules else { return Ok((built_in, String::new())) };
    let placed = rules.resolve(&tensors, backend)?;
    let digest = digest(&placed, &built_in);
    Ok((placed, digest))
}

/// The types in which the rows of a model can be cached. `native` says whether rows are rounded as
/// the model was trained for.
pub fn kv_types(config: &ModelConfig, native: bool) -> Vec<KvType> {
    let plain = config.ops().any(|op| op.compressed().is_some());
    let fits = |ty: &KvType| match ty {
        KvType::Fp8 => plain && native,
        KvType::Q8_0 => !plain,
        KvType::F32 | KvType::Bf16 | KvType::F16 => true,
    };
    KvType::ALL.into_iter().filter(fits).collect()
}

/// Checks that rows of the model can be held in a storage type.
///
/// # Errors
///
/// [`Error::KvType`] if they cannot.
pub(super) fn check_kv_type(config: &ModelConfig, ty: KvType, native: bool) -> Result<(), Error> {
    let types = kv_types(config, native);
    if types.contains(&ty) {
        return Ok(());
    }
    let names: Vec<_> = types.into_iter().map(KvType::name).collect();
    Err(Error::KvType { expected: names.join(", "), found: ty.name() })
}
