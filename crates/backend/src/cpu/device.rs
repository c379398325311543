//! The CPUs of this machine as a device.

use super::machine::Cpu;
use crate::error::Error;
use crate::memory;
use crate::seam::{Backend, Device, DeviceInfo, DeviceOptions};
use kernels::Isa;

/// The CPUs of this machine.
pub static CPU: Device = Device { name: "cpu", is_gpu: false, list: list_cpu, open: open_cpu };

pub(super) fn list_cpu() -> Vec<DeviceInfo> {
    let mut info = DeviceInfo {
        name: CPU.name.to_owned(),
        hardware: memory::cpu_name(),
        driver: String::new(),
        memory: memory::available_memory(),
        missing: Vec::new(),
        notes: Vec::new(),
    };
    match Isa::detect() {
        Ok(isa) => isa.name().clone_into(&mut info.driver),
        Err(problem) => info.missing.push(problem),
    }
    vec![info]
}

pub(super) fn open_cpu(options: &DeviceOptions<'_>) -> Result<Box<dyn Backend>, Error> {
    if options.which.is_some() {
        let problem = "there is one device cpu: expected no number or name behind it";
        return Err(Error::Device(problem.to_owned()));
    }
    let isa = options.bits.limit(Isa::detect().map_err(Error::Isa)?);
    let mut cpu = Cpu::with_isa(options.threads, options.mode, isa)?;
    match (options.numa, options.pin) {
        (true, pin) => cpu.bind_to_nodes(pin)?,
        (false, true) => cpu.pin_threads()?,
        (false, false) => {}
    }
    Ok(Box::new(cpu))
}
