//! The argument for packed weights.

use crate::folders;
use crate::kv_dir;
use engine::{LoadOptions, PackChoice};
use std::path::{Path, PathBuf};

/// The argument for packed weights.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct WeightsPackArgs {
    /// Weights that `gannet pack` wrote, used in place: a file, auto for one that fits beside the
    /// model or in the user's cache folder, or off
    #[arg(long, value_name = "FILE|auto|off", default_value = "auto")]
    weights_pack: PathBuf,
}

impl WeightsPackArgs {
    /// `options` with the file.
    pub fn add_to(&self, options: LoadOptions) -> LoadOptions {
        LoadOptions { pack: self.choice(), digests: kv_dir::digests(), ..options }
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
        args: WeightsPackArgs,
    }

    fn choice(args: &[&str]) -> PackChoice {
        let args = std::iter::once("program").chain(args.iter().copied());
        Program::try_parse_from(args).unwrap().args.choice()
    }

    #[test]
    fn a_pack_that_fits_is_used_unless_one_is_named_or_none() {
        assert_eq!(choice(&[]), PackChoice::Auto(folder()));
        assert_eq!(choice(&["--weights-pack", "off"]), PackChoice::Off);
        let file = PackChoice::File("a.gpack".into());
        assert_eq!(choice(&["--weights-pack", "a.gpack"]), file);
    }
}
