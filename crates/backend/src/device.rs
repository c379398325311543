//! The device that a user chose.

use crate::cpu::CPU;
use crate::seam::Device;

/// The device that a user chose.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceChoice {
    /// Its kind.
    pub device: &'static Device,
    /// As [`DeviceOptions::which`](crate::seam::DeviceOptions::which).
    pub which: Option<String>,
}

impl Default for DeviceChoice {
    fn default() -> Self {
        Self::from(&CPU)
    }
}

impl From<&'static Device> for DeviceChoice {
    fn from(device: &'static Device) -> Self {
        Self { device, which: None }
    }
}
