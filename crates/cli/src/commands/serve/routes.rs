//! The names of the model, and which routes `gannet serve` has.

use anyhow::{Result, ensure};
use server::ServerOptions;
use std::path::PathBuf;

/// Arguments for names and routes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Names and routes")]
pub(super) struct RouteArgs {
    /// Name of the model for clients, instead of its own; further names, separated by commas, are
    /// known too
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = name)]
    alias: Vec<String>,
    /// Serve no pages at / and /docs
    #[arg(long, alias = "no-webui")]
    no_ui: bool,
    /// Serve GET /slots, which is the default
    #[arg(long, overrides_with = "no_slots")]
    slots: bool,
    /// Answer GET /slots with 501
    #[arg(long, overrides_with = "slots")]
    no_slots: bool,
    /// Folder in which POST /slots/ID?action=save keeps files; without it such requests are
    /// answered with 501. All prefixes are kept on disk then, --kv-dir auto unless it is given
    #[arg(long, value_name = "DIR")]
    slot_save_path: Option<PathBuf>,
    /// Serve GET /metrics, which is the default
    #[arg(long, overrides_with = "no_metrics")]
    metrics: bool,
    /// Answer GET /metrics with 501
    #[arg(long, overrides_with = "metrics")]
    no_metrics: bool,
}

impl RouteArgs {
    /// The name of the model, if it is not its own.
    pub fn name(&self) -> Option<String> {
        self.alias.first().cloned()
    }

    /// The further names of the model.
    pub fn aliases(&self) -> Vec<String> {
        self.alias.clone()
    }

    /// These arguments over `options`.
    pub fn over(&self, options: ServerOptions) -> ServerOptions {
        ServerOptions {
            ui: !self.no_ui,
            slots: self.slots || !self.no_slots,
            slot_files: self.slot_save_path.clone(),
            metrics: self.metrics || !self.no_metrics,
            ..options
        }
    }
}

/// Parses a name of a model.
pub(super) fn name(text: &str) -> Result<String> {
    let text = text.trim();
    ensure!(!text.is_empty(), "expected a name");
    ensure!(!text.contains(char::is_control), "expected a name without control characters");
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    fn options(args: &[&str]) -> ServerOptions {
        let command = RouteArgs::augment_args(Command::new("serve").no_binary_name(true));
        let matches = command.try_get_matches_from(args).unwrap();
        RouteArgs::from_arg_matches(&matches).unwrap().over(ServerOptions::default())
    }

    #[test]
    fn the_last_of_two_flags_counts_and_all_routes_are_the_default() {
        let defaults = format!("{:?}", ServerOptions::default());
        assert_eq!(format!("{:?}", options(&[])), defaults);
        assert!(!options(&["--slots", "--no-slots"]).slots);
        assert!(options(&["--no-metrics", "--metrics"]).metrics);
        assert!(!options(&["--no-metrics"]).metrics && !options(&["--no-ui"]).ui);
    }

    #[test]
    fn names_are_not_empty() {
        assert!(name("").is_err() && name(" ").is_err() && name("a\nb").is_err());
    }
}
