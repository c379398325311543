//! The placement of one tensor under a rule.

use super::rules::{DeviceRule, Placed, RulePlace, TensorMemory, Type};
use crate::placement::tensor::TensorInfo;
use backend::{Backend, Device, Mode};
use kernels::quant::{self, QuantType};

impl DeviceRule {
    /// Whether the rule names a device that a whole model is loaded into, the first in use.
    fn names(self, loaded: &Device) -> bool {
        match self {
            Self::Host(device) => device == loaded,
            Self::Gpu(number) => loaded.is_gpu && number.is_none_or(|number| number == 0),
        }
    }
}

impl std::fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(device) => f.write_str(device.name),
            Self::Gpu(None) => f.write_str("gpu"),
            Self::Gpu(Some(number)) => write!(f, "gpu:{number}"),
        }
    }
}

impl RulePlace {
    /// This rule, completed by `default`.
    pub fn or(self, default: Self) -> Self {
        Self {
            mode: self.mode.or(default.mode),
            ty: self.ty.or(default.ty),
            memory: self.memory.or(default.memory),
            threads: self.threads.or(default.threads),
            prefill_threads: self.prefill_threads.or(default.prefill_threads),
            decode_threads: self.decode_threads.or(default.decode_threads),
            numa: self.numa.or(default.numa),
            device: self.device.or(default.device),
        }
    }

    /// The placement of a tensor.
    ///
    /// # Errors
    /// If the rule is impossible for the tensor, the device or this machine; with the reason.
    pub fn decide(&self, tensor: &TensorInfo, backend: &dyn Backend) -> Result<Placed, String> {
        let device = backend.device();
        let checked = self.check_numa(base::numa::nodes()).and(self.check_device(device));
        let checked = checked.and(self.check_on_a_gpu(device));
        checked.map_err(|why| format!("{}: {why}", tensor.name))?;
        let (mode, ty, memory) = match tensor.is_vector() {
            true => (Mode::Exact, &quant::F32, TensorMemory::Copied),
            false => {
                let mode = self.mode.unwrap_or(backend.mode());
                let ty = self.held_type(tensor)?;
                (mode, ty, self.held_in(tensor, mode, ty, backend)?)
            }
        };
        let packs = tensor.packed_bytes(ty, mode, backend).is_some();
        let is_packed = match memory {
            TensorMemory::Packed => true,
            // As it would be in memory.
            TensorMemory::Disk => packs,
            TensorMemory::Mapped | TensorMemory::Locked | TensorMemory::Copied => false,
        };
        Ok(Placed {
            name: tensor.name.clone(),
            kind: tensor.kind,
            rule: None,
            mode,
            ty,
            memory,
            memory_is_ruled: self.memory.is_some(),
            is_packed,
            arithmetic: tensor.arithmetic(ty, if is_packed { mode } else { Mode::Exact }, backend),
            device,
            prefill_threads: self.prefill_threads.or(self.threads),
            decode_threads: self.decode_threads.or(self.threads),
            numa: self.numa,
            bytes: bytes(tensor, ty, mode, memory, backend),
        })
    }

    /// Whether the rule sets something that only matrices can follow.
    pub fn wants_a_matrix(&self) -> bool {
        let other = |ty| ty != Type::Keep && ty != Type::As(&quant::F32);
        self.mode == Some(Mode::Fast) || self.ty.is_some_and(other) || self.memory.is_some()
    }

    /// Threads and memory are not bound to nodes yet, so that only node 0 of a machine with one
    /// node is accepted.
    fn check_numa(&self, nodes: usize) -> Result<(), String> {
        match self.numa {
            None => Ok(()),
            Some(0) if nodes == 1 => Ok(()),
            Some(node) => Err(format!(
                "place.numa {node}: weights cannot be bound to NUMA nodes yet; expected none, or \
                 node 0 of a machine with one node, found {nodes} here"
            )),
        }
    }

    /// Weights are held by the device that the model is loaded into.
    fn check_device(&self, loaded: &Device) -> Result<(), String> {
        match self.device {
            None => Ok(()),
            Some(rule) if rule.names(loaded) => Ok(()),
            Some(rule) => Err(format!(
                "place.device {rule}: expected {}, the device that the model is loaded into",
                if loaded.is_gpu { "gpu" } else { loaded.name }
            )),
        }
    }

    /// A GPU computes without threads, and with weights in its own memory.
    fn check_on_a_gpu(&self, loaded: &Device) -> Result<(), String> {
        let name = loaded.name;
        let phases = [self.threads, self.prefill_threads, self.decode_threads];
        if loaded.is_gpu && phases.iter().any(Option::is_some) {
            return Err(format!("place.threads: expected none, device {name} has no threads"));
        }
        match self.memory.filter(|memory| loaded.is_gpu && *memory != TensorMemory::Packed) {
            None => Ok(()),
            Some(memory) => Err(format!(
                "place.memory {}: expected packed, weights are copied into the memory of device \
                 {name}",
                memory.name()
            )),
        }
    }

    fn held_type(&self, tensor: &TensorInfo) -> Result<&'static QuantType, String> {
        let ty = match self.ty {
            Some(Type::As(ty)) if ty != tensor.ty => ty,
            _ => return Ok(tensor.ty),
        };
        let (name, found) = (&tensor.name, tensor.ty);
        if tensor.ty.dequantize.is_none() {
            return Err(format!("{name}: place.type: weights of type {found} cannot be read yet"));
        }
        if !tensor.fits(ty) {
            let (shape, block) = (&tensor.shape, ty.block_len);
            return Err(format!(
                "{name}: place.type: expected rows of whole blocks of {ty} ({block} values), found \
                 shape {shape:?}"
            ));
        }
        Ok(ty)
    }

    fn held_in(
        &self,
        tensor: &TensorInfo,
        mode: Mode,
        ty: &'static QuantType,
        backend: &dyn Backend,
    ) -> Result<TensorMemory, String> {
        let packs = tensor.packed_bytes(ty, mode, backend).is_some();
        let converted = ty != tensor.ty;
        let memory = match self.memory {
            None if packs => return Ok(TensorMemory::Packed),
            // It may be far larger than memory, and few of its rows are read for a token.
            None if tensor.is_ngram_table() && !converted && !backend.device().is_gpu => {
                return Ok(TensorMemory::Disk);
            }
            None if converted => return Ok(TensorMemory::Copied),
            None => return Ok(TensorMemory::Mapped),
            Some(memory) => memory,
        };
        let why = match memory {
            TensorMemory::Packed if packs => return Ok(memory),
            TensorMemory::Packed if mode == Mode::Exact => {
                "expected mode fast, found exact, which computes with weights as they are stored"
                    .to_owned()
            }
            TensorMemory::Packed => format!("there is no packed layout for {ty} here"),
            _ if converted => format!("weights converted to {ty} are not those of the file"),
            _ => return Ok(memory),
        };
        Err(format!("{}: place.memory {}: {why}", tensor.name, memory.name()))
    }
}

fn bytes(
    tensor: &TensorInfo,
    ty: &'static QuantType,
    mode: Mode,
    memory: TensorMemory,
    backend: &dyn Backend,
) -> usize {
    match memory {
        TensorMemory::Packed => tensor.packed_bytes(ty, mode, backend).unwrap_or(0),
        TensorMemory::Mapped | TensorMemory::Locked => tensor.bytes,
        TensorMemory::Disk => 0,
        TensorMemory::Copied => tensor.copied_bytes(ty),
    }
}
