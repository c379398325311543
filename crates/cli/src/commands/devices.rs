//! `gannet devices`: the devices that models can be loaded into.

use crate::output;
use anyhow::Result;
use backend::DeviceInfo;
use serde_json::{Value, json};

/// List the devices that can compute
///
/// The names are those of --device. A device that lacks what a backend needs is listed with what it
/// lacks.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let found: Vec<_> = devices::DEVICES.iter().flat_map(|device| (device.list)()).collect();
    let as_json = || found.iter().map(entry).collect::<Vec<_>>();
    output::report(args.json, as_json, || found.iter().map(lines).collect())
}

fn entry(device: &DeviceInfo) -> Value {
    let DeviceInfo { name, hardware, driver, memory, missing, notes } = device;
    json!({
        "name": name,
        "hardware": hardware,
        "driver": driver,
        "free_memory": memory,
        "missing": missing,
        "notes": notes,
    })
}

fn lines(device: &DeviceInfo) -> String {
    let DeviceInfo { name, hardware, driver, memory, missing, notes } = device;
    let memory = memory.map(|bytes| format!(", {} MiB free", bytes >> 20)).unwrap_or_default();
    let mut text = format!("{name}: {hardware} ({driver}){memory}\n");
    for missing in missing {
        text += &format!("    lacks {missing}\n");
    }
    for note in notes {
        text += &format!("    {note}\n");
    }
    text
}
