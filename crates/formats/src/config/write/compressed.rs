//! Writes attention to compressed rows and hyper-connections: fields of config.json.

use serde_json::{Map, Value as Json, json};

use super::super::hf::compressed::{INDEXED, POOLED, ROPE_DIM, WINDOW_ONLY};
use super::super::rows::{self, COMPRESSED_THETA};
use crate::config::model::ModelConfig;
use crate::config::schema::{CompressedConfig, INDEXED_RATIO};
use crate::error::Result;
use crate::json::extend;
use crate::layers::{RopeConfig, RopeScaling};

impl ModelConfig {
    /// The fields of config.json beyond the common ones.
    pub(super) fn compressed_json(&self, sizes: &CompressedConfig) -> Result<Json> {
        let mut json = json!({ROPE_DIM: sizes.rope_dim});
        extend(&mut json, rows::to_json(rows::COMPRESSED, &self.said));
        let parameters = json!({
            (COMPRESSED_THETA.hf[0]): sizes.rope.theta,
            "rope_parameters": {
                "main": self.rope_json(&self.said.rope)?,
                "compress": self.rope_json(&sizes.rope)?,
            },
        });
        extend(&mut json, parameters);
        if sizes.indexed.contains(&true) {
            extend(&mut json, rows::to_json(rows::ROW_INDEX, &self.said));
        }
        extend(&mut json, rows::to_json(rows::HYPER, &self.said));
        let fields = json.as_object_mut().expect("made as an object");
        self.schedule_json(sizes, fields)?;
        if let Some(experts) = &self.said.experts {
            let mut limits = experts.limits.iter().chain(&experts.shared_limits);
            if limits.any(|limit| Some(limit) != experts.limits.first()) {
                let problem = "expected one limit for all layers and the shared expert";
                return Err(self.error("swiglu_limit", problem));
            }
        }
        Ok(json)
    }

    /// The compression of each layer, by ratio where the ratios tell which layers have an index,
    /// and by type where layers of a type have one ratio.
    fn schedule_json(
        &self,
        sizes: &CompressedConfig,
        fields: &mut Map<String, Json>,
    ) -> Result<()> {
        let layers = || sizes.ratios.iter().copied().zip(sizes.indexed.iter().copied());
        let by_ratio = layers().all(|(ratio, indexed)| indexed == (ratio == INDEXED_RATIO));
        if by_ratio {
            fields.insert("compress_ratios".into(), json!(sizes.ratios));
        }
        let of_type = |kind: bool| layers().filter(move |&(ratio, it)| ratio > 0 && it == kind);
        let one = |kind| of_type(kind).all(|layer| Some(layer) == of_type(kind).next());
        if one(false) && one(true) {
            let kind = |layer| match layer {
                (0, _) => WINDOW_ONLY,
                (_, true) => INDEXED,
                (_, false) => POOLED,
            };
            fields.insert("layer_types".into(), layers().map(kind).collect());
            let rate = |(kind, name)| Some((name, of_type(kind).next()?.0));
            let rates = [(true, INDEXED), (false, POOLED)].into_iter().filter_map(rate);
            let rates: Map<_, _> =
                rates.map(|(name, ratio): (&str, _)| (name.to_owned(), json!(ratio))).collect();
            fields.insert("compress_rates".into(), Json::Object(rates));
        } else if !by_ratio {
            let problem = "expected an index in the layers of ratio 4 and in no others, or one \
                           ratio for all layers with an index and one for the others";
            return Err(self.error("compress_ratios", problem));
        }
        Ok(())
    }

    fn rope_json(&self, rope: &RopeConfig) -> Result<Json> {
        if matches!(rope.scaling, RopeScaling::Factors { .. }) {
            let problem = "factors of single frequencies cannot be written to config.json";
            return Err(self.error("rope_parameters", problem));
        }
        let mut json = json!(rope.scaling);
        json["rope_theta"] = json!(rope.theta);
        if matches!(rope.scaling, RopeScaling::Yarn { .. }) {
            json["attention_factor"] = json!(rope.magnitude);
        }
        Ok(json)
    }
}
