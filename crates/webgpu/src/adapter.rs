//! Adapters: which there are, which is opened, and what it must have.

use crate::gpu::{Gpu, PARAMS_BYTES};
use crate::webgpu::WebGpu;
use backend::{Backend, Device, DeviceInfo, DeviceOptions, Error};
use wgpu::{AdapterInfo, Backends, DeviceType, Features};

/// GPUs that wgpu finds.
pub static WGPU: Device = Device { name: "wgpu", is_gpu: true, list, open };

/// What the kernels need.
const FEATURES: Features = Features::IMMEDIATES;
/// Storage bindings that a kernel may have.
const BINDINGS: u32 = 10;
/// Invocations of the largest workgroup, and its memory in bytes.
const WORKGROUP: (u32, u32) = (256, 16 << 10);

fn adapters() -> Vec<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = Backends::VULKAN | Backends::METAL;
    descriptor.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(descriptor);
    let mut adapters = pollster::block_on(instance.enumerate_adapters(Backends::all()));
    let rank = |info: &AdapterInfo| match info.device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu | DeviceType::Other => 2,
        DeviceType::Cpu => 3,
    };
    adapters.sort_by_key(|adapter| rank(&adapter.get_info()));
    adapters
}

fn list() -> Vec<DeviceInfo> {
    let infos = adapters().into_iter().enumerate().map(|(number, adapter)| {
        let info = adapter.get_info();
        let mut notes = Vec::new();
        if info.device_type == DeviceType::Cpu {
            notes.push("software: chosen only by its number or name".to_owned());
        }
        DeviceInfo {
            name: format!("{}:{number}", WGPU.name),
            hardware: info.name.clone(),
            driver: driver(&info),
            memory: None,
            missing: missing(&adapter),
            notes,
        }
    });
    infos.collect()
}

/// API, driver and version, as far as the driver tells them.
fn driver(info: &AdapterInfo) -> String {
    let parts = [info.backend.to_str(), &info.driver, &info.driver_info];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

/// What an adapter lacks to run models.
fn missing(adapter: &wgpu::Adapter) -> Vec<String> {
    let (features, limits) = (adapter.features(), adapter.limits());
    let mut missing = Vec::new();
    if !features.contains(FEATURES) {
        missing.push(format!("the features {:?}", FEATURES - features));
    }
    let mut least = |what: &str, needed: u64, found: u64| {
        if found < needed {
            missing.push(format!("{what} of at least {needed}, found {found}"));
        }
    };
    least("bytes of parameters", PARAMS_BYTES as u64, limits.max_immediate_size.into());
    let bindings = limits.max_storage_buffers_per_shader_stage;
    least("storage bindings", BINDINGS.into(), bindings.into());
    let (invocations, memory) = WORKGROUP;
    let found = limits.max_compute_invocations_per_workgroup;
    least("invocations of a workgroup", invocations.into(), found.into());
    let found = limits.max_compute_workgroup_storage_size;
    least("bytes of memory of a workgroup", memory.into(), found.into());
    missing
}

/// The adapter that a user named by its number or a part of its name, or the first that is no
/// software.
fn choose(which: Option<&str>) -> Result<wgpu::Adapter, Error> {
    let adapters = adapters();
    let found = adapters.iter().map(|adapter| adapter.get_info().name).collect::<Vec<_>>();
    let number = which.and_then(|which| which.parse::<usize>().ok());
    let place = match (which, number) {
        (None, _) => {
            adapters.iter().position(|adapter| adapter.get_info().device_type != DeviceType::Cpu)
        }
        (Some(_), Some(number)) => (number < adapters.len()).then_some(number),
        (Some(name), None) => {
            let name = name.to_lowercase();
            found.iter().position(|found| found.to_lowercase().contains(&name))
        }
    };
    let list = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    let place = place.ok_or_else(|| {
        Error::Device(match which {
            Some(which) => format!("device wgpu:{which}: there is no such adapter; found {list}"),
            None => format!(
                "device wgpu: there is no GPU; found {list} (software is chosen only by name)"
            ),
        })
    })?;
    Ok(adapters.into_iter().nth(place).expect("a place among them"))
}

fn open(options: &DeviceOptions<'_>) -> Result<Box<dyn Backend>, Error> {
    Ok(Box::new(open_adapter(options)?))
}

/// Opens an adapter.
pub(crate) fn open_adapter(options: &DeviceOptions<'_>) -> Result<WebGpu, Error> {
    let adapter = choose(options.which)?;
    let info = adapter.get_info();
    let missing = missing(&adapter);
    if !missing.is_empty() {
        let missing = missing.join("; ");
        return Err(Error::Device(format!("device wgpu, {}: lacks {missing}", info.name)));
    }
    let descriptor = wgpu::DeviceDescriptor {
        label: None,
        required_features: FEATURES,
        // All that the adapter has: large bindings above all.
        required_limits: adapter.limits(),
        ..Default::default()
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
        .map_err(|error| Error::Device(format!("device wgpu, {}: {error}", info.name)))?;
    let gpu = Gpu::new(device, queue, format!("wgpu, {}", info.name), options.memory)?;
    let shares_memory = matches!(info.device_type, DeviceType::IntegratedGpu | DeviceType::Cpu);
    WebGpu::new(gpu, &WGPU, (identity(&info), shares_memory), options.mode)
}

/// Name of the arithmetic: API, adapter, driver.
fn identity(info: &AdapterInfo) -> String {
    let parts = [info.backend.to_str(), &info.name, &info.driver, &info.driver_info];
    let words = parts.iter().flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric()));
    let words: Vec<_> = words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    format!("wgpu-{}", words.join("-"))
}

/// The GPU that tests compute on, in `exact` mode, if one is named.
#[cfg(test)]
pub(crate) fn open_for_tests() -> Option<WebGpu> {
    let name = fixtures::gpu()?;
    let which = name.split_once(':').map(|(_, which)| which);
    let (pin, mode, bits) = (false, backend::Mode::Exact, backend::Bits::Fastest);
    let (threads, numa, memory) = (1, false, None);
    let options = DeviceOptions { threads, pin, numa, mode, bits, which, memory };
    Some(open_adapter(&options).unwrap_or_else(|error| panic!("{name}: {error}")))
}
