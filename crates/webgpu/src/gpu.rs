//! A device of wgpu: memory, kernels and the commands of a step.
//!
//! Operations record their dispatches; they reach the device when values are fetched, when a step
//! ends, or when enough of them wait. Errors of the driver are kept and reported when a step ends.

use backend::Error;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use wgpu::util::{BufferInitDescriptor, DeviceExt};

/// Most bytes of a kernel's parameters.
pub(crate) const PARAMS_BYTES: usize = 128;
/// Words of the region through which the host sends values to kernels.
const INBOX_WORDS: usize = 1 << 20;
/// Dispatches after which recorded commands are sent to the device.
const BURST: usize = 256;

/// A compute shader: `main` in its source, with parameters of type `Params` in `params`.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Name in messages, unique among kernels.
    pub name: &'static str,
    /// Parts of the WGSL source, one after another.
    pub source: &'static [&'static str],
    /// Access to each binding of group 0, in order.
    pub bindings: &'static [Access],
}

/// What a kernel does with a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`. Memory that is bound twice must be bound so each time.
    Write,
}

/// A run of 32-bit words in the device's memory.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    id: u64,
    buffer: wgpu::Buffer,
    words: usize,
    _counted: Arc<CountedBytes>,
}

/// Bytes that count as allocated until this is dropped.
#[derive(Debug)]
struct CountedBytes {
    bytes: usize,
    allocated: Arc<AtomicUsize>,
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.allocated.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Words {
    /// Number of words.
    pub fn len(&self) -> usize {
        self.words
    }
}

struct Pipeline {
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
    /// By the bound runs.
    groups: HashMap<Vec<u64>, wgpu::BindGroup>,
}

/// An open device.
pub(crate) struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    name: String,
    limits: wgpu::Limits,
    pipelines: HashMap<&'static str, Pipeline>,
    encoder: Option<wgpu::CommandEncoder>,
    recorded: usize,
    inbox: Words,
    /// Words of the inbox that recorded commands use.
    sent: usize,
    next_id: u64,
    /// The first error of the driver since errors were last asked for.
    failure: Arc<Mutex<Option<String>>>,
    /// Bytes that may be allocated, and bytes that are.
    budget: Option<usize>,
    allocated: Arc<AtomicUsize>,
}

impl Gpu {
    /// Takes an open device into use. `budget` limits the bytes that are allocated.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        name: String,
        budget: Option<usize>,
    ) -> Result<Self, Error> {
        let failure = Arc::new(Mutex::new(None));
        let keep = |failure: &Arc<Mutex<Option<String>>>| {
            let failure = Arc::clone(failure);
            move |problem: String| {
                let mut kept = failure.lock().unwrap_or_else(PoisonError::into_inner);
                kept.get_or_insert(problem);
            }
        };
        let uncaptured = keep(&failure);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            uncaptured(error.to_string());
        }));
        let lost = keep(&failure);
        device.set_device_lost_callback(move |reason, message| {
            lost(format!("the device is lost ({reason:?}): {message}"));
        });
        let limits = device.limits();
        let inbox = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("inbox"),
            size: 4 * INBOX_WORDS as u64,
            usage: USAGE,
            mapped_at_creation: false,
        });
        let allocated = Arc::default();
        let inbox = counted(&allocated, 0, inbox, INBOX_WORDS);
        let gpu = Self {
            device,
            queue,
            name,
            limits,
            pipelines: HashMap::new(),
            encoder: None,
            recorded: 0,
            inbox,
            sent: 0,
            next_id: 1,
            failure,
            budget,
            allocated,
        };
        gpu.check()?;
        Ok(gpu)
    }

    /// Most words that a kernel can see of one run.
    pub fn most_bound_words(&self) -> usize {
        let bytes = self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size);
        bytes as usize / 4
    }

    /// Bytes that may still be allocated; `None` where no limit was set.
    pub fn spare(&self) -> Option<usize> {
        self.budget.map(|budget| budget.saturating_sub(self.allocated.load(Ordering::Relaxed)))
    }

    /// Allocates `words` zeroed words.
    ///
    /// # Errors
    /// If a kernel could not see all of them, or there is not enough memory.
    pub fn zeroed(&mut self, words: usize) -> Result<Words, Error> {
        let words = words.max(1);
        let bytes = self.take_bytes(words)?;
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes as u64,
            usage: USAGE,
            mapped_at_creation: false,
        });
        self.made(buffer, words, pollster::block_on(scope.pop()))
    }

    /// Allocates words with these values.
    ///
    /// # Errors
    /// As [`zeroed`](Self::zeroed).
    pub fn filled(&mut self, values: &[u32]) -> Result<Words, Error> {
        if values.is_empty() {
            return self.zeroed(1);
        }
        self.take_bytes(values.len())?;
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let contents = bytemuck::cast_slice(values);
        let description = BufferInitDescriptor { label: None, contents, usage: USAGE };
        let buffer = self.device.create_buffer_init(&description);
        self.made(buffer, values.len(), pollster::block_on(scope.pop()))
    }

    fn take_bytes(&mut self, words: usize) -> Result<usize, Error> {
        let bytes = words.saturating_mul(4);
        if words > self.most_bound_words() {
            return Err(Error::Device(format!(
                "{}: expected memory of at most {} MiB in one piece, found {} MiB",
                self.name,
                self.most_bound_words() >> 18,
                bytes >> 20,
            )));
        }
        if let Some(spare) = self.spare().filter(|spare| bytes > *spare) {
            let problem = format!(
                "{}: expected {} more memory, found {} left: choose a smaller type, context or \
                 chunk, or raise --device-memory",
                self.name,
                kib_or_mib(bytes),
                kib_or_mib(spare),
            );
            return Err(Error::Device(problem));
        }
        Ok(bytes)
    }

    fn made(
        &mut self,
        buffer: wgpu::Buffer,
        words: usize,
        error: Option<wgpu::Error>,
    ) -> Result<Words, Error> {
        if error.is_some() {
            return Err(Error::Memory(base::OutOfMemory { bytes: 4 * words as u128 }));
        }
        self.next_id += 1;
        Ok(counted(&self.allocated, self.next_id - 1, buffer, words))
    }

    /// Returns memory that kernels may have used.
    pub fn free(&mut self, words: Words) {
        for pipeline in self.pipelines.values_mut() {
            pipeline.groups.retain(|key, _| !key.contains(&words.id));
        }
    }

    /// Sends values to the device for kernels that are recorded next, which find them from the
    /// returned word of [`inbox`](Self::inbox) on.
    ///
    /// # Panics
    /// If there are more values than any batch has.
    pub fn send(&mut self, values: &[u32]) -> u32 {
        assert!(values.len() <= INBOX_WORDS, "values of one operation");
        if self.sent + values.len() > INBOX_WORDS {
            self.submit();
        }
        let start = self.sent;
        self.sent += values.len();
        if !values.is_empty() {
            self.write(&self.inbox.clone(), start, values);
        }
        start as u32
    }

    /// What [`send`](Self::send) sends.
    pub fn inbox(&self) -> Words {
        self.inbox.clone()
    }

    /// Writes values from word `at` on, before all commands that are not submitted yet.
    pub fn write(&self, to: &Words, at: usize, values: &[u32]) {
        assert!(at + values.len() <= to.words, "values within the run");
        self.queue.write_buffer(&to.buffer, 4 * at as u64, bytemuck::cast_slice(values));
    }

    fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        let device = &self.device;
        self.encoder.get_or_insert_with(|| {
            device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
        })
    }

    fn count(&mut self) {
        self.recorded += 1;
        if self.recorded >= BURST {
            self.submit();
        }
    }

    /// Records a kernel: `groups` workgroups in each dimension, of which none may be zero or more
    /// than 65535.
    pub fn run<P: bytemuck::NoUninit>(
        &mut self,
        kernel: &'static Kernel,
        groups: [usize; 3],
        bound: &[&Words],
        params: &P,
    ) {
        assert_eq!(kernel.bindings.len(), bound.len(), "bindings of {}", kernel.name);
        assert!(size_of::<P>() <= PARAMS_BYTES, "parameters of {}", kernel.name);
        let [x, y, z] = groups.map(|count| u32::try_from(count).expect("few workgroups"));
        assert!([x, y, z].iter().all(|n| (1..65536).contains(n)), "{}: {groups:?}", kernel.name);
        self.encoder();
        let pipeline = (self.pipelines.entry(kernel.name))
            .or_insert_with(|| Pipeline::new(&self.device, kernel));
        let group = pipeline.group(&self.device, bound);
        let encoder = self.encoder.as_mut().expect("made above");
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &group, &[]);
        let mut bytes = [0; PARAMS_BYTES];
        bytes[..size_of::<P>()].copy_from_slice(bytemuck::bytes_of(params));
        pass.set_immediates(0, &bytes);
        pass.dispatch_workgroups(x, y, z);
        drop(pass);
        self.count();
    }

    /// Sends recorded commands to the device.
    pub fn submit(&mut self) {
        if let Some(encoder) = self.encoder.take() {
            self.queue.submit([encoder.finish()]);
        }
        (self.recorded, self.sent) = (0, 0);
    }

    /// Waits for the device and reads `out.len()` words from word `at` on.
    pub fn read(&mut self, from: &Words, at: usize, out: &mut [u32]) {
        if out.is_empty() {
            return;
        }
        let bytes = 4 * out.len() as u64;
        let landing = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("landing"),
            size: bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.encoder().copy_buffer_to_buffer(&from.buffer, 4 * at as u64, &landing, 0, bytes);
        self.submit();
        let (sender, receiver) = std::sync::mpsc::channel();
        landing.map_async(wgpu::MapMode::Read, .., move |result| {
            let _ = sender.send(result);
        });
        let polled = self.device.poll(wgpu::PollType::wait_indefinitely());
        let problem = match (polled, receiver.try_recv()) {
            (Ok(_), Ok(Ok(()))) => match landing.get_mapped_range(..) {
                Ok(view) => {
                    out.copy_from_slice(bytemuck::cast_slice(&view));
                    return;
                }
                Err(error) => error.to_string(),
            },
            (Err(error), _) => error.to_string(),
            (_, Ok(Err(error))) => error.to_string(),
            (_, Err(_)) => "values were not copied to the host".to_owned(),
        };
        out.fill(0);
        let mut kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(problem);
    }

    /// The first error since the last call.
    ///
    /// # Errors
    /// [`Error::Lost`] if the driver reported an error.
    pub fn check(&self) -> Result<(), Error> {
        let mut kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.take() {
            Some(problem) => Err(Error::Lost(format!("device {}: {problem}", self.name))),
            None => Ok(()),
        }
    }
}

/// A size for messages.
fn kib_or_mib(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

/// A run whose bytes count as allocated while it is used.
fn counted(allocated: &Arc<AtomicUsize>, id: u64, buffer: wgpu::Buffer, words: usize) -> Words {
    let (bytes, allocated) = (4 * words, Arc::clone(allocated));
    allocated.fetch_add(bytes, Ordering::Relaxed);
    Words { id, buffer, words, _counted: Arc::new(CountedBytes { bytes, allocated }) }
}

/// What all memory of a device is used for.
const USAGE: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_DST)
    .union(wgpu::BufferUsages::COPY_SRC);

impl Pipeline {
    fn new(device: &wgpu::Device, kernel: &Kernel) -> Self {
        let source = kernel.source.concat();
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
        let entry = |(binding, access): (u32, &Access)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: *access == Access::Read },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = (0..).zip(kernel.bindings).map(entry).collect();
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some(kernel.name),
            entries: &entries,
        });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(kernel.name),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: PARAMS_BYTES as u32,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        Self { pipeline, layout, groups: HashMap::new() }
    }

    fn group(&mut self, device: &wgpu::Device, bound: &[&Words]) -> wgpu::BindGroup {
        let key: Vec<_> = bound.iter().map(|words| words.id).collect();
        let layout = &self.layout;
        let make = || {
            let entries: Vec<_> = (0..).zip(bound).map(entry).collect();
            let label = None;
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label,
                layout,
                entries: &entries,
            })
        };
        self.groups.entry(key).or_insert_with(make).clone()
    }
}

fn entry<'a>((binding, words): (u32, &&'a Words)) -> wgpu::BindGroupEntry<'a> {
    wgpu::BindGroupEntry { binding, resource: words.buffer.as_entire_binding() }
}
