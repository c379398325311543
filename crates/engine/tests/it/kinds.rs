//! What tests ask of families.

use formats::ModelConfig;

/// Whether layers keep states.
pub fn has_states(config: &ModelConfig) -> bool {
    config.hyperparameters().delta.is_some() || config.hyperparameters().mamba.is_some()
}

/// Whether some rows have a window.
pub fn has_windows(config: &ModelConfig) -> bool {
    let some = config.hyperparameters().windows.iter().any(Option::is_some);
    some || config.hyperparameters().compressed.is_some()
        || config.hyperparameters().convs.is_some()
}

/// Whether files hold experts in another form than they are used, so that they cannot be read from
/// there: in turns, or with inputs first.
pub fn converts_experts(architecture: &str) -> bool {
    ["gpt_oss", "llama4"].contains(&architecture)
}
