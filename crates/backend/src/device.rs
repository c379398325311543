//! The table of devices: the backends that a model can be loaded into, by name.

use crate::reference::Reference;
use crate::{Backend, Cpu, Error, Mode};

/// All devices; the first is the default.
pub static DEVICES: [Device; 2] = [
    Device { name: "cpu", open: open_cpu },
    Device { name: "reference", open: |options| Ok(Box::new(Reference::new(options.mode)?)) },
];

/// A kind of backend.
pub struct Device {
    /// Name in flags, rules and tables.
    pub name: &'static str,
    open: fn(DeviceOptions) -> Result<Box<dyn Backend>, Error>,
}

/// Options of a backend.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// Number of compute threads.
    pub threads: usize,
    /// Whether each thread is pinned to a CPU of its own.
    pub pin: bool,
    /// The mode of products with matrices that name none.
    pub mode: Mode,
}

/// How a backend holds a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Name of the layout.
    pub layout: &'static str,
    /// Bytes of the copy in this layout; `None` if the bytes of the file are used as they are.
    pub bytes: Option<usize>,
}

impl Device {
    /// The device of this name.
    ///
    /// # Errors
    /// An unknown name, as a message that lists all names.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        DEVICES.iter().find(|device| device.name == name).ok_or_else(|| {
            let names = DEVICES.each_ref().map(|device| device.name).join(", ");
            format!("device must be one of {names}, not {name:?}")
        })
    }

    /// Opens an empty backend.
    ///
    /// # Errors
    /// If the device has no such mode, or the system refuses threads or their pinning.
    pub fn open(&self, options: DeviceOptions) -> Result<Box<dyn Backend>, Error> {
        (self.open)(options)
    }
}

fn open_cpu(options: DeviceOptions) -> Result<Box<dyn Backend>, Error> {
    let cpu = Cpu::new(options.threads, options.mode)?;
    if options.pin {
        cpu.pin_threads()?;
    }
    Ok(Box::new(cpu))
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_device_is_an_error_that_lists_all() {
        let error = Device::named("gpu").unwrap_err();
        assert_eq!(error, "device must be one of cpu, reference, not \"gpu\"");
        let options = DeviceOptions { threads: 1, pin: false, mode: Mode::Exact };
        for device in &DEVICES {
            assert_eq!(Device::named(device.name), Ok(device));
            assert_eq!(device.open(options).unwrap().device(), device);
        }
    }
}
