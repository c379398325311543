//! The root of all chains of KV blocks: a digest of everything but tokens that decides the bits of
//! a block.
//!
//! Invariant: the digest covers values under written labels, never the names that types, fields or
//! variants have in the source, so that renaming them changes no block name.

use super::settings::Settings;
use backend::{AdapterSet, ScaledAdapter};
use base::Name;
use std::ops::Range;

/// Version of the encoding: raised when a label, the order or the encoding changes.
const VERSION: u8 = 3;

/// The parent of first blocks of `block` positions that are computed under `settings`.
pub(crate) fn block_root(settings: &Settings, block: usize) -> Name {
    let Settings { checkpoint, mode, kv_type, arithmetic, placement, slices, rounding, drafter } =
        settings;
    let mut bytes = vec![VERSION];
    write_field(&mut bytes, "checkpoint", checkpoint);
    write_field(&mut bytes, "mode", mode.name());
    write_field(&mut bytes, "kv_type", kv_type.name());
    write_field(&mut bytes, "arithmetic", arithmetic);
    write_field(&mut bytes, "placement", placement);
    write_field(&mut bytes, "slices", &slices.to_string());
    write_field(&mut bytes, "block", &block.to_string());
    if let Some(rounding) = rounding {
        write_field(&mut bytes, "rounding", rounding.name());
    }
    if let Some(drafter) = drafter {
        write_field(&mut bytes, "drafter", drafter);
    }
    Name::root(&bytes)
}

/// The root of what is stored on disk, where "probably the same model" is not enough. `weights` is
/// a digest of all bytes of the weights, `machine` what the machine contributes to the arithmetic.
pub(crate) fn disk_root(settings: &Settings, block: usize, weights: &str, machine: &[f32]) -> Name {
    let root = block_root(settings, block);
    let mut bytes = root.to_bytes().to_vec();
    write_field(&mut bytes, "weights", weights);
    write_field(&mut bytes, "arithmetic", &kernels::ARITHMETIC.to_string());
    write_field(&mut bytes, "machine", &machine_name(machine).to_string());
    Name::root(&bytes)
}

/// The root of what the slice of this number stores, of several that hold parts of these layers:
/// bytes of its parts of other layers are not known to it.
pub(crate) fn of_slice(root: Name, slice: usize, layers: &Range<usize>) -> Name {
    let mut bytes = root.to_bytes().to_vec();
    write_field(&mut bytes, "slice", &slice.to_string());
    write_field(&mut bytes, "layers", &format!("{}-{}", layers.start, layers.end));
    Name::root(&bytes)
}

/// The name of what a machine contributes to the arithmetic.
pub(crate) fn machine_name(fingerprint: &[f32]) -> Name {
    let bytes: Vec<u8> = fingerprint.iter().flat_map(|value| value.to_le_bytes()).collect();
    Name::root(&bytes)
}

/// The space of the prefix cache of long sequences, in place of `space`.
pub(crate) fn long_space(space: [u8; 16]) -> [u8; 16] {
    let mut bytes = vec![VERSION];
    write_field(&mut bytes, "long", "true");
    bytes.extend_from_slice(&space);
    Name::root(&bytes).to_bytes()
}

/// The space of the prefix cache of sequences with `adapters`, in place of `space`.
pub(crate) fn adapted_space(space: [u8; 16], adapters: &AdapterSet) -> [u8; 16] {
    if adapters.is_empty() {
        return space;
    }
    let mut bytes = vec![VERSION];
    for ScaledAdapter { adapter, scale } in adapters.iter() {
        write_field(&mut bytes, "adapter", adapter.digest());
        write_field(&mut bytes, "scale", &format!("{:08x}", scale.to_bits()));
    }
    bytes.extend_from_slice(&space);
    Name::root(&bytes).to_bytes()
}

/// Appends a label and a value, each preceded by its length in bytes (64 bits, little-endian).
fn write_field(bytes: &mut Vec<u8>, label: &str, value: &str) {
    for text in [label, value] {
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::cache_rounding::CacheRounding;
    use backend::{Adapter, KvType, Mode};
    use std::sync::Arc;

    fn settings() -> Settings {
        Settings {
            checkpoint: "0123abcd".into(),
            mode: Mode::Fast,
            kv_type: KvType::Bf16,
            arithmetic: "bytes+f32".into(),
            placement: "fedc".into(),
            slices: 2,
            rounding: None,
            drafter: None,
        }
    }

    #[test]
    fn block_names_do_not_depend_on_source_names() {
        let root = block_root(&settings(), 32);
        assert_eq!(root.to_string(), "b0533af66ce6b27cf82ce8edc19603f3");
    }

    #[test]
    fn long_sequences_have_spaces_of_their_own() {
        let (common, other) = (long_space([0; 16]), long_space([1; 16]));
        assert!(common != [0; 16] && common != other && other != [1; 16]);
    }

    #[test]
    fn adapters_their_scales_and_their_order_have_spaces_of_their_own() {
        let set = |adapters: &[(&str, f32)]| {
            let scaled = |(digest, scale): &(&str, f32)| {
                let adapter = Arc::new(Adapter::new((*digest).to_owned(), Vec::new()));
                ScaledAdapter { adapter, scale: *scale }
            };
            AdapterSet::new(adapters.iter().map(scaled))
        };
        let sets = [
            set(&[]),
            set(&[("a", 1.0)]),
            set(&[("b", 1.0)]),
            set(&[("a", 0.5)]),
            set(&[("a", 1.0), ("b", 1.0)]),
            set(&[("b", 1.0), ("a", 1.0)]),
        ];
        let spaces =
            sets.iter().flat_map(|set| [[0; 16], [1; 16]].map(|it| adapted_space(it, set)));
        let spaces: Vec<_> = spaces.collect();
        for (at, space) in spaces.iter().enumerate() {
            assert!(!spaces[..at].contains(space), "{at}");
        }
        assert_eq!(adapted_space([1; 16], &set(&[("a", 0.0)])), [1; 16]);
        assert_eq!(adapted_space([1; 16], &set(&[("a", 1.0)])), spaces[3]);
    }

    #[test]
    fn weights_and_settings_change_the_root_on_disk() {
        let root = disk_root(&settings(), 32, "00ff", &[0.0]);
        assert_eq!(disk_root(&settings(), 32, "00ff", &[0.0]), root);
        let exact = Settings { mode: Mode::Exact, ..settings() };
        let others = [
            block_root(&settings(), 32),
            disk_root(&settings(), 32, "00fe", &[0.0]),
            disk_root(&settings(), 16, "00ff", &[0.0]),
            disk_root(&settings(), 32, "00ff", &[-0.0]),
            disk_root(&exact, 32, "00ff", &[0.0]),
        ];
        assert!(!others.contains(&root));
    }

    #[test]
    fn every_setting_changes_the_root() {
        let all = [
            settings(),
            Settings { checkpoint: "0123abce".into(), ..settings() },
            Settings { mode: Mode::Exact, ..settings() },
            Settings { kv_type: KvType::F16, ..settings() },
            Settings { arithmetic: "f32".into(), ..settings() },
            Settings { placement: "fed".into(), ..settings() },
            Settings { slices: 1, ..settings() },
            Settings { drafter: Some("0123abcd".into()), ..settings() },
            Settings { rounding: Some(CacheRounding::Off), ..settings() },
            Settings { rounding: Some(CacheRounding::Native), ..settings() },
        ];
        let mut roots: Vec<Name> = all.iter().map(|settings| block_root(settings, 32)).collect();
        roots.push(block_root(&settings(), 16));
        for (at, root) in roots.iter().enumerate() {
            assert!(!roots[..at].contains(root), "{at}");
        }
    }
}
