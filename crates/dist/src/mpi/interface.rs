//! Which binary interface an MPI library has.

use std::path::Path;

/// A binary interface of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    /// That of the MPI standard, from version 5.
    Standard,
    /// That of Open MPI 4 and 5.
    OpenMpi,
    /// That of MPICH, Intel MPI and Cray MPICH.
    Mpich,
}

/// The interface of the library at `path`, which says this of its version; `is_open_mpi` if it has
/// the names of Open MPI's objects.
pub(super) fn interface(path: &Path, version: &str, is_open_mpi: bool) -> Option<Interface> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let of_mpich = ["MPICH", "Intel", "CRAY"].iter().any(|word| version.contains(word));
    match () {
        () if name.starts_with("libmpi_abi.") => Some(Interface::Standard),
        () if is_open_mpi => Some(Interface::OpenMpi),
        () if of_mpich => Some(Interface::Mpich),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_follow_from_names_and_versions() {
        let of = |path: &str, version: &str, is_open_mpi| {
            interface(Path::new(path), version, is_open_mpi)
        };
        let open_mpi = "Open MPI v5.0.11, package: Open MPI";
        assert_eq!(of("/usr/lib/libmpi.so.40", open_mpi, true), Some(Interface::OpenMpi));
        let mpich = "MPICH Version:      5.0.2";
        assert_eq!(of("libmpi.so.12", mpich, false), Some(Interface::Mpich));
        assert_eq!(of("/a/libmpi_abi.so.1", mpich, false), Some(Interface::Standard));
        let intel = "Intel(R) MPI Library 2021.16 for Linux* OS";
        assert_eq!(of("mpi.so", intel, false), Some(Interface::Mpich));
        assert_eq!(of("libmpi.so.20", "Other MPI 1.0", false), None);
    }
}
