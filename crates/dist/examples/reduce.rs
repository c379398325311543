//! The time of a sum over ranks of MPI: `mpirun -n 2 cargo run --release -p gannet-dist --example
//! reduce`, or `mpirun -n 2 PATH` of the program that this builds.
//!
//! Rank 0 prints, for several numbers of values, the median time of a sum over all ranks.

#[cfg(unix)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use dist::Comm;
    use std::io::Write;
    use std::time::Instant;

    const ROUNDS: usize = 2001;
    let mpi = dist::Mpi::world()?;
    for values in [16, 1024, 4096, 1 << 16] {
        let mut sum = vec![0.0; values];
        let mut times: Vec<f64> = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            mpi.barrier()?;
            let begun = Instant::now();
            mpi.all_reduce_sum(&mut sum)?;
            times.push(begun.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        if mpi.rank() == 0 {
            let median = 1e6 * times[ROUNDS / 2];
            writeln!(std::io::stdout(), "{} bytes: {median:.1} us", 4 * values)?;
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn main() {}
