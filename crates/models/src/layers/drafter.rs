//! What drafts tokens with the states of a model, of any kind.

use super::assistant::Assistant;
use super::state_drafter::{OfModel, StateDrafter};
use crate::error::Error;
use crate::loader::Loader;
use crate::model::{DraftStates, Drafted};
use crate::pass::ForwardPass;
use backend::{Buffer, LayerCache};
use formats::DraftConfig;

/// Layers that draft tokens.
pub(crate) enum Drafter {
    /// Layers of multi-token prediction, or a head of EAGLE-3.
    States(StateDrafter),
    Assistant(Assistant),
}

impl Drafter {
    /// Loads the layers, and tells what each keeps of a sequence.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, ranks share the model, or the device has no
    /// memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        config: &DraftConfig,
    ) -> Result<(Self, Vec<LayerCache>), Error> {
        if loader.stage.ranks() * loader.slice.ranks() > 1 {
            let problem = "layers that draft tokens cannot be divided among ranks";
            return Err(Error::Config(problem.to_owned()));
        }
        match config {
            DraftConfig::Assistant(config) => {
                let (assistant, caches) = Assistant::load(loader, config)?;
                Ok((Self::Assistant(assistant), caches))
            }
            config => {
                let (drafter, caches) = StateDrafter::load(loader, config)?;
                Ok((Self::States(drafter), caches))
            }
        }
    }

    /// Number of layers of which each drafts a token.
    pub fn layers(&self) -> usize {
        match self {
            Self::States(drafter) => drafter.layers(),
            Self::Assistant(_) => 1,
        }
    }

    /// Values of a state.
    pub fn width(&self) -> usize {
        match self {
            Self::States(drafter) => drafter.width(),
            Self::Assistant(assistant) => assistant.width(),
        }
    }

    /// The drafted words by their numbers, where they are not the first ones.
    pub fn words(&self) -> Option<&[u32]> {
        match self {
            Self::States(drafter) => drafter.words(),
            Self::Assistant(_) => None,
        }
    }

    /// Keeps the residual stream of the model before the layer with this `number`, if states are
    /// made of it.
    pub fn tap(&self, pass: &mut ForwardPass<'_>, number: usize, stream: Buffer) {
        if let Self::States(drafter) = self {
            drafter.tap(pass, number, stream);
        }
    }

    /// Stores what is kept of a batch that the model has just computed.
    ///
    /// # Errors
    /// With checking on, if a value is not finite.
    pub fn follow(&self, pass: &mut ForwardPass<'_>, model: &OfModel<'_>) -> Result<(), Error> {
        match self {
            Self::States(drafter) => drafter.follow(pass, model),
            Self::Assistant(assistant) => {
                assistant.follow(pass, model);
                Ok(())
            }
        }
    }

    /// Computes the rows of the batch in the layer `at`, and the logits that the batch wants.
    ///
    /// # Errors
    /// With checking on, if a value is not finite.
    pub fn draft(
        &self,
        pass: &mut ForwardPass<'_>,
        at: usize,
        states: DraftStates<'_>,
        model: &OfModel<'_>,
    ) -> Result<Drafted, Error> {
        match self {
            Self::States(drafter) => drafter.draft(pass, at, states, model),
            Self::Assistant(assistant) => assistant.draft(pass, states, model),
        }
    }
}
