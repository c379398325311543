//! Ranks of all kinds keep the same laws.

mod laws;
#[cfg(unix)]
mod mpi;

use dist::Local;

#[test]
fn ranks_that_are_threads_keep_the_laws() {
    for ranks in [1, 2, 3, 4, 8] {
        std::thread::scope(|scope| {
            for local in Local::group(ranks) {
                scope.spawn(move || laws::hold(&local));
            }
        });
    }
}
