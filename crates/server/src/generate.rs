//! Generation for every protocol: from a prepared prompt to the events of its answers, and the
//! members of requests and answers that protocols share.

pub(crate) mod answer;
pub(crate) mod choices;
pub(crate) mod chosen_adapters;
pub(crate) mod constraint;
pub(crate) mod delivery;
pub(crate) mod embeddings;
pub(crate) mod flow;
pub(crate) mod length;
pub(crate) mod logged_texts;
pub(crate) mod logprobs;
pub(crate) mod mixed_prompts;
pub(crate) mod options;
pub(crate) mod receipts;
pub(crate) mod samplers;
pub(crate) mod sampling;
pub(crate) mod speculation;
pub(crate) mod think;
pub(crate) mod timings;
