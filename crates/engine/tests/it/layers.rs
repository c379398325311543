//! What is loaded of a layer is what its specification lists.

use crate::checkpoints::{architectures, config_of, write_tensors};
use engine::{LoadOptions, Runner};
use formats::layers::{Presence, TensorForm, TensorSpec};
use formats::{Checkpoint, ModelConfig, OpenOptions};

/// Every kind of layer that a family has.
const LAYERS: usize = 4;

/// The tensors of one layer of each kind, by their canonical names.
fn listed(config: &ModelConfig) -> Vec<(String, TensorSpec)> {
    let is_first = |(number, layer): &(usize, &_)| !config.layers[..*number].contains(layer);
    let layers = config.layers.iter().enumerate().filter(is_first);
    let of_layer = layers.flat_map(|(number, layer)| {
        layer
            .loaded(config.hidden)
            .into_iter()
            .map(move |tensor| (format!("blk.{number}.{}", tensor.name), tensor))
    });
    of_layer.collect()
}

/// Loads a checkpoint with these tensors.
fn load(config: &ModelConfig, tensors: Vec<(String, Vec<usize>)>) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    write_tensors(folder.path(), config, tensors, |_, _| {});
    let checkpoint = Checkpoint::open(folder.path(), &OpenOptions::default());
    let checkpoint = checkpoint.map_err(|error| error.to_string())?;
    let options = LoadOptions { threads: 1, ..LoadOptions::default() };
    Runner::load(&checkpoint, &options).map(drop).map_err(|error| error.to_string())
}

#[test]
fn tensors_of_a_layer_are_those_that_are_loaded() {
    for architecture in architectures() {
        let config = config_of(architecture, LAYERS);
        let names = formats::families::name_table(architecture).unwrap();
        let written = config.tensors(TensorForm::Hf);
        load(&config, written.clone()).unwrap();
        let mut more = written.clone();
        for (name, TensorSpec { presence, shape, .. }) in listed(&config) {
            let at = written.iter().position(|(known, _)| *known == name);
            match (at, presence) {
                (Some(at), Presence::Required) => {
                    let mut fewer = written.clone();
                    fewer.remove(at);
                    let error = load(&config, fewer).expect_err(&format!("{architecture}: {name}"));
                    assert!(error.contains("found no such tensor"), "{name}: {error}");
                }
                (None, Presence::Optional) if names.source(&name).is_some() => {
                    more.push((name, shape));
                }
                _ => {}
            }
        }
        load(&config, more).unwrap_or_else(|error| panic!("{architecture}: {error}"));
    }
}
