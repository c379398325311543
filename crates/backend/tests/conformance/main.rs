//! Every operation of every device against the CPU in `exact` mode, with random shapes.
//!
//! `GANNET_TEST_GPU` names a GPU, as `--device` does; without it only the reference device is
//! compared.

mod adapters;
mod attention;
mod experts;
mod pair;
mod plain;
mod products;
mod recurrent;
mod rows;
mod sequences;
mod sparse;
mod streams;

use backend::{Backend, Bits, DeviceOptions, Mode};
use pair::Pair;

/// Opens a device.
fn open(name: &str, mode: Mode) -> Box<dyn Backend> {
    let choice = devices::choose(name).expect("a device of this build");
    let which = choice.which.as_deref();
    let options = DeviceOptions {
        threads: 2,
        pin: false,
        numa: false,
        mode,
        bits: Bits::Fastest,
        which,
        memory: None,
    };
    (choice.device.open)(&options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Opens the GPU that tests compute on, if one is named.
fn open_gpu(mode: Mode) -> Option<Box<dyn Backend>> {
    fixtures::gpu().map(|name| open(&name, mode))
}

/// Calls `check` with the CPU and the device `name`, some times with other random numbers.
fn on_device(name: &str, mode: Mode, times: u64, mut check: impl FnMut(&mut Pair)) {
    for seed in 0..times {
        check(&mut Pair::new(open("cpu", mode), open(name, mode), seed));
    }
}

/// Calls `check` with the CPU and each other device, in `exact` mode.
fn on_every_device(times: u64, mut check: impl FnMut(&mut Pair)) {
    on_device("reference", Mode::Exact, times, &mut check);
    if let Some(gpu) = fixtures::gpu() {
        on_device(&gpu, Mode::Exact, times, &mut check);
    }
}
