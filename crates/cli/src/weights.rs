//! The arguments for the memory of weights, for packed ones, and for what is known of experts.

use crate::folders;
use crate::kv_dir;
use crate::size::{bytes, count};
use engine::{LoadOptions, PackChoice, ProfileUse, WEIGHTS_READ_THREADS, WeightsMemory};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The arguments for the memory of weights, for packed ones, and for what is known of experts.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct WeightsArgs {
    #[command(flatten)]
    memory: MemoryArgs,
    /// Read experts at the start that earlier runs have used most, where not all are in memory:
    /// auto, or off. `gannet experts profile` shows what is known
    #[arg(long, value_name = "auto|off", default_value = "auto", value_parser = preload)]
    #[arg(action = clap::ArgAction::Set)]
    weights_preload: bool,
    /// Write which experts the rows of each step choose into this file, for `gannet experts
    /// simulate`
    #[arg(long, value_name = "FILE")]
    route_trace: Option<PathBuf>,
}

/// The arguments for the memory of weights and for packed ones.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct MemoryArgs {
    /// Weights that `gannet pack` wrote, used in place: a file, auto for one that fits beside the
    /// model or in the user's cache folder, or off
    #[arg(long, value_name = "FILE|auto|off", default_value = "auto")]
    weights_pack: PathBuf,
    /// Memory for weights, such as 8GiB; auto for all weights if they fit beside the KV cache, else
    /// most of what is available; or all. Weights beyond it are read from disk when they are
    /// needed, experts when tokens choose them
    #[arg(long, value_name = "SIZE|auto|all", default_value = "auto", value_parser = WeightsMemory::from_str)]
    weights_memory: WeightsMemory,
    /// Memory for rows of tables that stay in the file, such as those of n-grams, which are kept by
    /// use
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = bytes)]
    table_memory: usize,
    /// Threads that read such weights
    #[arg(long, value_name = "N", default_value_t = WEIGHTS_READ_THREADS, value_parser = count)]
    weights_read_threads: usize,
    /// Count at most this much memory as available, such as 8GiB, to see what a smaller machine
    /// would do
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    simulate_memory: Option<usize>,
}

/// `auto` or `off`, for which `false` stands too.
fn preload(text: &str) -> Result<bool, String> {
    match text {
        "auto" => Ok(true),
        "off" | "false" => Ok(false),
        other => Err(format!("expected auto or off, found {other:?}")),
    }
}

impl WeightsArgs {
    /// Threads that read weights.
    pub fn read_threads(&self) -> usize {
        self.memory.weights_read_threads
    }

    /// `options` with these arguments.
    pub fn add_to(&self, options: LoadOptions) -> LoadOptions {
        let mut options = self.memory.add_to(options);
        options.route_trace.clone_from(&self.route_trace);
        options
            .expert_profiles
            .iter_mut()
            .for_each(|profiles| profiles.preload = self.weights_preload);
        options
    }
}

impl MemoryArgs {
    /// The settings that these arguments give.
    pub const KEYS: [&str; 5] = [
        "weights-pack",
        "weights-memory",
        "table-memory",
        "weights-read-threads",
        "simulate-memory",
    ];

    /// `options` with these arguments.
    pub fn add_to(&self, options: LoadOptions) -> LoadOptions {
        LoadOptions {
            pack: self.choice(),
            digests: kv_dir::digests(),
            weights_memory: self.weights_memory,
            table_memory: self.table_memory,
            weights_read_threads: self.weights_read_threads,
            simulate_memory: self.simulate_memory,
            expert_profiles: profile_folder().map(ProfileUse::new),
            ..options
        }
    }

    fn choice(&self) -> PackChoice {
        let named = &self.weights_pack;
        if folders::is_off(named) {
            return PackChoice::Off;
        }
        match named == Path::new("auto") {
            true => PackChoice::Auto(folder()),
            false => PackChoice::File(named.clone()),
        }
    }
}

/// The folder of profiles of experts in the user's cache folder.
pub(crate) fn profile_folder() -> Option<PathBuf> {
    Some(folders::cache()?.join("experts"))
}

/// The folder of packed weights in the user's cache folder.
pub(crate) fn folder() -> Option<PathBuf> {
    Some(folders::cache()?.join("packs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: MemoryArgs,
    }

    fn parse(args: &[&str]) -> Result<MemoryArgs, String> {
        let args = std::iter::once("program").chain(args.iter().copied());
        Program::try_parse_from(args).map(|it| it.args).map_err(|error| error.to_string())
    }

    fn choice(args: &[&str]) -> PackChoice {
        parse(args).unwrap().choice()
    }

    #[test]
    fn memory_is_a_size_or_a_word() {
        let memory = |args: &[&str]| parse(args).map(|args| args.weights_memory);
        assert_eq!(memory(&[]), Ok(WeightsMemory::Auto));
        assert_eq!(memory(&["--weights-memory", "all"]), Ok(WeightsMemory::All));
        let size = memory(&["--weights-memory", "2GiB"]);
        assert_eq!(size, Ok(WeightsMemory::Bytes(2 << 30)));
        let error = memory(&["--weights-memory", "much"]).unwrap_err();
        assert!(error.contains("much") && error.contains("--weights-memory"), "{error}");
    }

    #[test]
    fn a_pack_that_fits_is_used_unless_one_is_named_or_none() {
        assert_eq!(choice(&[]), PackChoice::Auto(folder()));
        assert_eq!(choice(&["--weights-pack", "off"]), PackChoice::Off);
        let file = PackChoice::File("a.gpack".into());
        assert_eq!(choice(&["--weights-pack", "a.gpack"]), file);
    }
}
