//! The arguments that choose the device that computes.

use crate::size::bytes;
use backend::{Bits, DeviceChoice};
use engine::LoadOptions;

/// The arguments for the device.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct DeviceArgs {
    /// Device that computes: auto, cpu, wgpu, wgpu:N or wgpu:NAME; `gannet devices` lists them.
    /// reference defines every operation and is slow
    #[arg(long, value_name = "DEVICE")]
    #[arg(default_value = "auto", value_parser = devices::choose)]
    device: DeviceChoice,
    /// Maximum memory of a GPU, such as 8GiB [default: all]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    device_memory: Option<usize>,
}

/// The argument for the arithmetic of products.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct BitsArgs {
    /// Bits of answers: portable (the same on every CPU) or fastest (BF16 and FP8 weights are
    /// multiplied in BF16 where this CPU is faster with it, which rounds as this CPU does)
    #[arg(long, value_name = "WHICH", default_value = "fastest")]
    pub bits: Bits,
}

impl DeviceArgs {
    /// The default options of loading, on this device.
    pub fn options(&self) -> LoadOptions {
        LoadOptions {
            device: self.device.clone(),
            device_memory: self.device_memory,
            ..LoadOptions::default()
        }
    }
}
