//! Steps: the loop of the engine's thread, from requests to tokens; and sequences computed without
//! it.

mod choice_recorder;
mod depth_drafter;
mod draft;
pub(crate) mod draft_lengths;
mod draft_planner;
mod embedding_pooler;
pub(crate) mod engine_options;
mod flights;
mod followed_adapters;
pub(crate) mod follower;
mod layer_drafter;
mod led_turns;
mod masks;
mod model_drafter;
mod prefill_budget;
pub(crate) mod run;
mod running_request;
mod sampler;
pub(crate) mod sequence_memory;
pub(crate) mod single_sequence;
mod step_cost;
pub(crate) mod step_measure;
mod step_sampler;
mod stepping;
pub(crate) mod token_sampler;
pub mod trace;
pub(crate) mod turns;
