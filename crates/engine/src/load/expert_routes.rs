//! Takes what the rows of each step have chosen, for a trace and for the profile of the model.

use super::error::Error;
use super::options::LoadOptions;
use crate::observe::expert_profile::{ExpertProfile, ProfileUse};
use crate::observe::routes::{RouteHeader, RouteWriter, VERSION};
use backend::{Backend, ExpertUse};
use formats::ModelConfig;
use formats::layers::OpSpec;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What happens to the choices of experts.
#[derive(Debug, Default)]
pub(super) struct ExpertRoutes {
    step: u64,
    /// The choices of a step; kept, so that the next one allocates nothing.
    uses: Vec<ExpertUse>,
    trace: Option<RouteWriter>,
    profile: Option<NewProfile>,
}

/// The counts of this run, and where they go.
#[derive(Debug)]
struct NewProfile {
    path: PathBuf,
    counts: ExpertProfile,
    /// The experts of each layer that this rank has.
    own: Range<usize>,
}

impl ExpertRoutes {
    /// Starts what `options` ask for, with the model of `identity`, and reads the experts ahead
    /// that earlier runs have used most.
    ///
    /// # Errors
    /// If options name a trace, and the model has no experts, the device does not tell, or the file
    /// cannot be written.
    pub fn start(
        backend: &mut dyn Backend,
        config: &ModelConfig,
        identity: &str,
        options: &LoadOptions,
    ) -> Result<Self, Error> {
        let mut routes = Self::default();
        let header = header(backend, config, identity, options);
        if let Some(path) = &options.route_trace {
            let whole = header.as_ref().filter(|_| !options.ranks.are_several());
            routes.trace = Some(open_trace(path, backend, whole)?);
        }
        if let Some((header, profiles)) = header.as_ref().zip(options.expert_profiles.as_ref())
            && backend.streamed().is_some_and(|streamed| streamed.stream_stats().is_some())
        {
            let own = options.ranks.own_experts(header.experts as usize)?;
            routes.profile = use_profile(backend, (header, own), profiles);
        }
        if routes.is_needed()
            && let Some(recorded) = backend.routes()
        {
            recorded.record_routes();
        }
        Ok(routes)
    }

    fn is_needed(&self) -> bool {
        self.trace.is_some() || self.profile.is_some()
    }

    /// Takes what the rows of the step that has ended have chosen.
    pub fn step(&mut self, backend: &mut dyn Backend) {
        if !self.is_needed() {
            return;
        }
        self.uses.clear();
        if let Some(recorded) = backend.routes() {
            recorded.take_routes(&mut self.uses);
        }
        if let Some(trace) = &mut self.trace {
            trace.step(self.step, &self.uses);
        }
        if let Some(profile) = &mut self.profile {
            self.uses.iter().for_each(|it| profile.counts.count(it));
        }
        self.step += 1;
    }
}

/// Merges the counts with those of earlier runs.
impl Drop for ExpertRoutes {
    fn drop(&mut self) {
        let Some(NewProfile { path, counts, own }) = self.profile.take() else { return };
        if let Err(problem) = counts.merge_into(&path, own) {
            tracing::warn!("the profile of experts is not stored: {problem}");
        }
    }
}

/// What traces and profiles say of the layers of this rank; `None` without experts, and where the
/// device does not tell.
fn header(
    backend: &dyn Backend,
    config: &ModelConfig,
    identity: &str,
    options: &LoadOptions,
) -> Option<RouteHeader> {
    let own = options.ranks.own_layers().map(|own| own.start as u32..own.end as u32);
    let is_own = |number: &u32| own.as_ref().is_none_or(|own| own.contains(number));
    let routed = (0_u32..).zip(config.all_layers()).filter_map(|(number, layer)| {
        let experts = layer.ops().find_map(OpSpec::experts)?;
        is_own(&number).then_some((number, experts))
    });
    let (_, experts) = routed.clone().next()?;
    let layers: Vec<u32> = routed.map(|(number, _)| number).collect();
    let sizes = backend.streamed()?.expert_bytes();
    (layers.len() == sizes.len()).then(|| RouteHeader {
        gannet_routes: VERSION,
        checkpoint: identity.to_owned(),
        model: config.name.clone(),
        layers,
        experts: experts.count as u32,
        chosen: experts.chosen as u32,
        slot_bytes: sizes.iter().map(|it| it.slot as u64).collect(),
        read_bytes: sizes.iter().map(|it| it.read as u64).collect(),
    })
}

fn open_trace(
    path: &Path,
    backend: &mut dyn Backend,
    header: Option<&RouteHeader>,
) -> Result<RouteWriter, Error> {
    let error = |problem: String| Error::RouteTrace { path: path.to_owned(), problem };
    let Some(header) = header.filter(|_| backend.routes().is_some()) else {
        return Err(error(format!(
            "expected a model with experts, held as a whole by device cpu, found none on device {}",
            backend.device().name
        )));
    };
    RouteWriter::create(path, header).map_err(|problem| error(problem.to_string()))
}

/// Reads the experts ahead that a profile names, and begins the counts of this run.
fn use_profile(
    backend: &mut dyn Backend,
    (header, own): (&RouteHeader, Range<usize>),
    profiles: &ProfileUse,
) -> Option<NewProfile> {
    let path = ExpertProfile::path(&profiles.folder, &header.checkpoint);
    if profiles.preload && path.exists() {
        match ExpertProfile::read(&path).and_then(|it| it.check_of(&header.checkpoint).map(|()| it))
        {
            Ok(profile) => match (profile.of(header), backend.streamed_mut()) {
                (Some(own), Some(streamed)) => streamed.preload_experts(&own.shares()),
                (None, _) => tracing::warn!("{}: the profile has other experts", path.display()),
                (_, None) => {}
            },
            Err(problem) => tracing::warn!("the profile of experts is not used: {problem}"),
        }
    }
    profiles.record.then(|| NewProfile { path, counts: ExpertProfile::new(header), own })
}
