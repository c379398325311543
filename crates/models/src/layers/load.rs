//! Loads an operation as its specification says.

use super::blocks::BlockAttention;
use super::compressed::CompressedAttention;
use super::convolution::ShortConvolution;
use super::delta::GatedDelta;
use super::experts::Moe;
use super::grouped::GroupedAttention;
use super::joint::MlpAndExperts;
use super::latent::LatentAttention;
use super::layer_input::LayerInput;
use super::mlp::GatedMlp;
use super::ngrams::NgramEmbeddings;
use super::operation::{OpPlace, Operation};
use super::parallel::Parallel;
use super::state_space::StateSpace;
use crate::error::Error;
use crate::loader::Loader;
use backend::LayerCache;
use formats::layers::OpSpec;

/// Loads an operation.
pub(crate) fn load(
    loader: &mut Loader<'_>,
    place: OpPlace,
    spec: &OpSpec,
) -> Result<Box<dyn Operation>, Error> {
    Ok(match spec {
        OpSpec::Grouped(spec) => Box::new(GroupedAttention::load(loader, place, spec)?),
        OpSpec::Latent(spec) => Box::new(LatentAttention::load(loader, place, spec)?),
        OpSpec::Compressed(spec) => Box::new(CompressedAttention::load(loader, place, spec)?),
        OpSpec::Delta(spec) => Box::new(GatedDelta::load(loader, place, spec)?),
        OpSpec::StateSpace(spec) => Box::new(StateSpace::load(loader, place, spec)?),
        OpSpec::Convolution(spec) => Box::new(ShortConvolution::load(loader, place, spec)?),
        OpSpec::Mlp(spec) => Box::new(GatedMlp::load(loader, "", spec)?),
        OpSpec::Experts(spec) => Box::new(Moe::load(loader, spec)?),
        OpSpec::Joint(spec) => Box::new(MlpAndExperts::load(loader, spec)?),
        OpSpec::LayerInput(spec) => Box::new(LayerInput::load(loader, spec)?),
        OpSpec::Blocks(spec) => Box::new(BlockAttention::load(loader, place, spec)?),
        OpSpec::Ngrams(spec) => Box::new(NgramEmbeddings::load(loader, place, spec)?),
        OpSpec::Parallel(specs) => {
            let ops = load_all(loader, place, specs)?;
            Box::new(Parallel::new(loader, ops)?)
        }
    })
}

/// Loads operations whose rows follow each other in the cache of the layer, and tells what they
/// keep together.
fn load_all(
    loader: &mut Loader<'_>,
    place: OpPlace,
    specs: &[OpSpec],
) -> Result<(Vec<Box<dyn Operation>>, LayerCache), Error> {
    let (mut ops, mut cache) = (Vec::new(), LayerCache::default());
    for spec in specs {
        let place = OpPlace { rows: place.rows + cache.rows.len(), ..place };
        let op = load(loader, place, spec)?;
        cache.extend(op.cache());
        ops.push(op);
    }
    Ok((ops, cache))
}
