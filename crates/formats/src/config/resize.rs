//! Hyperparameters with another number of layers, for models of random weights.

use crate::config::schema::Hyperparameters;
use crate::config::schema::OfLayers;

impl Hyperparameters {
    /// Sets the number of layers. Where layers differ, the last four are repeated.
    pub fn resize(&mut self, layers: usize) {
        let window = self.windows.last().copied().flatten();
        self.layers = layers;
        self.windows.resize(layers, window);
        let limit = self.mlp_limits.last().copied().flatten();
        self.mlp_limits.resize(layers, limit);
        if let Some(experts) = &mut self.experts {
            let last = experts.layers.last() == Some(&true);
            experts.layers.resize(layers, last);
            experts.by_token.resize(layers, false);
            repeat(&mut experts.limits, layers);
            repeat(&mut experts.shared_limits, layers);
        }
        self.experts = self.experts.take().filter(|experts| experts.layers.contains(&true));
        resize(&mut self.delta, layers);
        resize(&mut self.mamba, layers);
        resize(&mut self.convs, layers);
        if let Some(index) = &mut self.index {
            repeat(&mut index.layers, layers);
        }
        if let Some(sources) = &mut self.kv_sources {
            sources.truncate(layers);
            for at in sources.len()..layers {
                let before = at.saturating_sub(4);
                let source = sources[before];
                sources.push(if source == before { at } else { source });
            }
        }
        if let Some(mut heads) = self.layer_heads.take() {
            repeat(&mut heads, layers);
            self.set_heads(heads);
        }
        if let Some(own) = self.block_index.as_mut().and_then(|index| index.layers.as_mut()) {
            repeat(own, layers);
        }
        self.block_index = self.block_index.take().filter(|index| index.has_any());
        repeat(&mut self.sublayers, layers);
        repeat(&mut self.unrotated, layers);
        if let Some(sizes) = &mut self.compressed {
            repeat(&mut sizes.ratios, layers);
            repeat(&mut sizes.indexed, layers);
            if !sizes.indexed.contains(&true) {
                (sizes.index_heads, sizes.index_dim, sizes.index_top) = (0, 0, 0);
            }
        }
    }
}

/// The same for an operation that some layers have; `None` where none has it any more.
fn resize<S>(part: &mut Option<OfLayers<S>>, layers: usize) {
    *part = part.take().and_then(|mut part| {
        repeat(&mut part.layers, layers);
        part.some()
    });
}

/// Cuts `values` to `count`, or repeats the last four of them.
fn repeat<T: Copy>(values: &mut Vec<T>, count: usize) {
    let period = values.len().min(4);
    values.truncate(count);
    while period > 0 && values.len() < count {
        values.push(values[values.len() - period]);
    }
}
