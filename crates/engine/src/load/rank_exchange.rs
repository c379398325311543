//! What the ranks that share a model tell each other before they load it: every rank learns what
//! each of them says.

use super::error::Error;
use dist::Comm;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What each rank of `world` says, by rank, of which this one says `own`. Every rank must call
/// this.
///
/// # Errors
/// If a rank is of another version or has ended.
pub(super) fn exchange<T: Serialize + DeserializeOwned>(
    world: &dyn Comm,
    own: &T,
) -> Result<Vec<T>, Error> {
    let failed = |error| Error::from(models::Error::from(error));
    let own = serde_json::to_vec(own).expect("what ranks say is JSON");
    let (rank, ranks) = (world.rank(), world.ranks());
    let mut all = vec![Vec::new(); ranks];
    if rank == 0 {
        for (from, said) in all.iter_mut().enumerate().skip(1) {
            world.receive_bytes(from, said).map_err(failed)?;
        }
        all[0] = own;
        for to in 1..ranks {
            all.iter().try_for_each(|said| world.send_bytes(to, said)).map_err(failed)?;
        }
    } else {
        world.send_bytes(0, &own).map_err(failed)?;
        all.iter_mut().try_for_each(|said| world.receive_bytes(0, said)).map_err(failed)?;
    }
    let read = |(rank, said): (usize, Vec<u8>)| {
        let problem = |error| Error::Ranks(format!("rank {rank} has another version: {error}"));
        serde_json::from_slice(&said).map_err(problem)
    };
    all.into_iter().enumerate().map(read).collect()
}

/// `found`, of which rank 0 reports an error that all ranks have found alike.
pub(super) fn reported_by_first<T>(world: &dyn Comm, found: Result<T, Error>) -> Result<T, Error> {
    found.map_err(|error| if world.rank() == 0 { error } else { Error::RanksDiffer })
}
