//! Arguments for ranks that share a model.

use crate::durations::seconds;
use crate::exit::WrongUsage;
use crate::size::count;
use anyhow::{Result, bail};
use clap::ValueEnum;
use dist::{Local, Mpi};
use models::Ranks;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

/// Ranks that share a model.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Ranks")]
pub(crate) struct RankArgs {
    /// Ranks that share the model: processes that mpirun or srun has started (mpi), threads of this
    /// process (local), or mpi where such a launcher has started it (auto)
    #[arg(long, value_name = "HOW", default_value = "auto")]
    ranks: RankKind,
    /// Number of stages that the layers are divided among [default: the ranks over --tensor]
    #[arg(long, value_name = "N", value_parser = count)]
    pipeline: Option<usize>,
    /// Number of ranks that the tensors of each layer are divided among
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    tensor: usize,
    /// Number of layers of each stage, such as 12,16,16,12 [default: stages of about equal bytes]
    #[arg(long, value_name = "N,N")]
    stage_layers: Option<StageLayers>,
    /// Steps under way at once, so that no stage waits for the others [default: as many as stages]
    #[arg(long, value_name = "N", value_parser = in_flight)]
    in_flight: Option<usize>,
    /// CPUs of each rank of --ranks local, such as 0-15,16-31 [default: a NUMA node for each, where
    /// there are as many]
    #[arg(long, value_name = "CPUS,CPUS")]
    local_cpus: Option<CpuLists>,
    /// Seconds of silence after which a rank of MPI is gone
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    rank_timeout: Duration,
}

/// What ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RankKind {
    /// Processes where a launcher of MPI has started this one, else none
    Auto,
    /// Processes that MPI connects
    Mpi,
    /// Threads of this process
    Local,
}

/// The ranks that arguments ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankChoice {
    /// One.
    Alone,
    /// The processes that MPI has started.
    Mpi,
    /// This number of threads.
    Local(usize),
}

/// A number of steps under way at once.
fn in_flight(text: &str) -> Result<usize, String> {
    let most = Ranks::MAX_IN_FLIGHT;
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {most}"))
}

/// Numbers of layers, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StageLayers(Vec<usize>);

impl FromStr for StageLayers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| format!("expected numbers such as 12,16, found {part:?}");
        let number = |part: &str| part.trim().parse::<NonZeroUsize>().map_err(|_| wrong(part));
        text.split(',')
            .map(|part| number(part).map(NonZeroUsize::get))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// CPUs, of which each rank has a range or a single one, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CpuLists(Vec<Vec<usize>>);

impl FromStr for CpuLists {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |part: &str| format!("expected ranges of CPUs such as 0-15,16-31, found {part:?}");
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u16>().map(usize::from);
            let (first, last) =
                number(first).ok().zip(number(last).ok()).ok_or_else(|| wrong(part))?;
            if first > last { Err(wrong(part)) } else { Ok((first..=last).collect()) }
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl RankArgs {
    /// The ranks that are asked for.
    ///
    /// # Errors
    /// If there are none of that kind, or not as many as stages of slices.
    pub fn choice(&self) -> Result<RankChoice> {
        let (pipeline, tensor) = (self.pipeline.unwrap_or(1), self.tensor);
        let asked = pipeline.saturating_mul(tensor);
        let is_launched = Mpi::is_launched();
        match self.ranks {
            RankKind::Local if asked > Local::MAX_RANKS => {
                let most = Local::MAX_RANKS;
                bail!(WrongUsage::new(format!("--ranks local: {asked} ranks, at most {most}")))
            }
            RankKind::Local if asked == 1 => Ok(RankChoice::Alone),
            RankKind::Local => Ok(RankChoice::Local(asked)),
            RankKind::Mpi if !is_launched => bail!(WrongUsage::new(
                "--ranks mpi: expected a launcher such as mpirun to have started this process"
            )),
            RankKind::Mpi | RankKind::Auto if is_launched => Ok(RankChoice::Mpi),
            RankKind::Mpi | RankKind::Auto if asked == 1 => Ok(RankChoice::Alone),
            RankKind::Mpi | RankKind::Auto => bail!(WrongUsage::new(format!(
                "{asked} ranks share the model (--pipeline, --tensor): start this command with \
                 mpirun -n {asked}, or add --ranks local"
            ))),
        }
    }

    /// Checks that `ranks` ranks are stages of slices.
    ///
    /// # Errors
    /// If they are not.
    pub fn check(&self, ranks: usize) -> Result<()> {
        let tensor = self.tensor;
        let fits = match self.pipeline {
            Some(stages) => stages.saturating_mul(tensor) == ranks,
            None => ranks.is_multiple_of(tensor),
        };
        if fits {
            return Ok(());
        }
        let stages = self.pipeline.map_or_else(|| "stages".into(), |it| format!("{it} stages"));
        let problem =
            format!("expected ranks for {stages} of {tensor} slices, found {ranks} ranks");
        Err(WrongUsage::new(problem).into())
    }

    /// Number of ranks that the tensors of each layer are divided among.
    pub fn slices(&self) -> usize {
        self.tensor
    }

    /// The layers of each stage, where they are given.
    pub fn stage_layers(&self) -> Option<Vec<usize>> {
        self.stage_layers.as_ref().map(|layers| layers.0.clone())
    }

    /// Steps under way at once, where that is given.
    pub fn in_flight(&self) -> Option<usize> {
        self.in_flight
    }

    /// Silence after which a rank is gone.
    pub fn timeout(&self) -> Duration {
        self.rank_timeout
    }

    /// The CPUs of each of `ranks` ranks that are threads; `None` for those of the process.
    ///
    /// # Errors
    /// If they are given for another number of ranks.
    pub fn local_cpus(&self, ranks: usize) -> Result<Option<Vec<Vec<usize>>>> {
        match &self.local_cpus {
            Some(CpuLists(lists)) if lists.len() == ranks => Ok(Some(lists.clone())),
            Some(CpuLists(lists)) => {
                let found = lists.len();
                let problem = format!("--local-cpus: expected {ranks} ranges, found {found}");
                Err(WrongUsage::new(problem).into())
            }
            None => Ok(base::numa::cpus().filter(|nodes| nodes.len() == ranks)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    fn args(given: &[&str]) -> RankArgs {
        let command = RankArgs::augment_args(Command::new("serve"));
        let all = ["serve"].iter().chain(given);
        RankArgs::from_arg_matches(&command.get_matches_from(all)).unwrap()
    }

    #[test]
    fn ranks_are_threads_or_need_a_launcher() {
        let choice = |given: &[&str]| args(given).choice().map_err(|error| error.to_string());
        assert_eq!(choice(&[]), Ok(RankChoice::Alone));
        assert_eq!(choice(&["--ranks=local"]), Ok(RankChoice::Alone));
        assert_eq!(choice(&["--ranks=local", "--tensor=2"]), Ok(RankChoice::Local(2)));
        let both = ["--ranks=local", "--tensor=2", "--pipeline=3"];
        assert_eq!(choice(&both), Ok(RankChoice::Local(6)));
        assert!(choice(&["--tensor=2"]).unwrap_err().contains("mpirun -n 2"));
        assert!(choice(&["--ranks=mpi"]).unwrap_err().contains("launcher"));
        assert!(choice(&["--ranks=local", "--tensor=99999"]).unwrap_err().contains("at most"));
    }

    #[test]
    fn ranks_are_stages_of_slices() {
        let check = |given: &[&str], ranks| args(given).check(ranks).map_err(|it| it.to_string());
        assert!(check(&[], 3).is_ok() && check(&["--tensor=2"], 4).is_ok());
        assert!(check(&["--tensor=2", "--pipeline=3"], 6).is_ok());
        let problem = check(&["--tensor=2"], 3).unwrap_err();
        assert_eq!(problem, "expected ranks for stages of 2 slices, found 3 ranks");
        assert!(check(&["--pipeline=3"], 2).unwrap_err().contains("3 stages of 1"));
    }

    #[test]
    fn layers_and_cpus_are_lists() {
        assert_eq!("3, 4".parse(), Ok(StageLayers(vec![3, 4])));
        for wrong in ["", "3,", "0,4", "a", "-1"] {
            assert!(wrong.parse::<StageLayers>().unwrap_err().contains("12,16"), "{wrong}");
        }
        assert_eq!("0-2,5".parse(), Ok(CpuLists(vec![vec![0, 1, 2], vec![5]])));
        for wrong in ["", "2-1", "1-", "a-b", "1-99999"] {
            assert!(wrong.parse::<CpuLists>().unwrap_err().contains("0-15"), "{wrong}");
        }
        let two = args(&["--local-cpus=0-1,2-3"]);
        assert_eq!(two.local_cpus(2).unwrap().unwrap()[1], [2, 3]);
        assert!(two.local_cpus(3).unwrap_err().to_string().contains("3 ranges, found 2"));
    }
}
