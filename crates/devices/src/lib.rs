//! The devices that this build can load models into, by name.
//!
//! Invariant: this is the only list of devices; a new backend is one more line of [`DEVICES`].

use backend::{CPU, Device, DeviceChoice, REFERENCE};

/// All kinds of devices of this build. `auto` is the first.
pub static DEVICES: &[&Device] = &[
    &CPU,
    &REFERENCE,
    #[cfg(feature = "wgpu")]
    &webgpu::WGPU,
];

/// The name of GPUs, which a build may lack.
const WGPU: &str = "wgpu";

/// The device of a name: `auto`, a kind such as `cpu`, or a kind with a number or a part of a name
/// after a colon, such as `wgpu:1`.
///
/// # Errors
/// An unknown name, as a message that lists all kinds.
pub fn choose(name: &str) -> Result<DeviceChoice, String> {
    if name == "auto" {
        return Ok(DeviceChoice::from(DEVICES[0]));
    }
    let (kind, which) = match name.split_once(':') {
        Some((kind, which)) => (kind, Some(which.to_owned())),
        None => (name, None),
    };
    let device = DEVICES.iter().find(|device| device.name == kind).ok_or_else(|| {
        let names: Vec<_> = DEVICES.iter().map(|device| device.name).collect();
        let hint = match kind == WGPU && !names.contains(&WGPU) {
            true => "; this build has no GPUs: cargo build --features wgpu",
            false => "",
        };
        format!("device must be auto or one of {}, not {name:?}{hint}", names.join(", "))
    })?;
    if which.as_deref() == Some("") {
        return Err(format!("expected a number or a name behind {name:?}"));
    }
    Ok(DeviceChoice { device, which })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend::{Bits, DeviceOptions, Mode};

    #[test]
    fn an_unknown_device_is_an_error_that_lists_all() {
        let error = choose("gpu").unwrap_err();
        assert!(error.starts_with("device must be auto or one of cpu, reference"), "{error}");
        assert!(choose("cpu:").is_err());
        for &device in DEVICES {
            assert_eq!(choose(device.name), Ok(DeviceChoice::from(device)));
        }
        assert_eq!(choose("auto"), Ok(DeviceChoice::default()));
    }

    #[test]
    fn a_device_opens_as_itself() {
        let options = DeviceOptions {
            threads: 1,
            pin: false,
            numa: false,
            mode: Mode::Exact,
            bits: Bits::Fastest,
            which: None,
            memory: None,
        };
        for device in [&CPU, &REFERENCE] {
            assert_eq!((device.open)(&options).unwrap().device(), device);
        }
        let second = DeviceOptions { which: Some("1"), ..options };
        let error = (CPU.open)(&second).err().unwrap().to_string();
        assert!(error.contains("one device cpu"), "{error}");
    }
}
