//! The root of all chains of KV blocks: a digest of everything but tokens that decides the bits of
//! a block.
//!
//! Invariant: the digest covers values under written labels, never the names that types, fields or
//! variants have in the source, so that renaming them changes no block name.

use crate::Settings;
use base::Name;

/// Version of the encoding: raised when a label, the order or the encoding changes.
const VERSION: u8 = 1;

/// The parent of first blocks of `block` positions that are computed under `settings`.
pub(crate) fn block_root(settings: &Settings, block: usize) -> Name {
    let Settings { checkpoint, mode, kv_type, identity, placement, slices, rounding } = settings;
    let mut bytes = vec![VERSION];
    write_field(&mut bytes, "checkpoint", checkpoint);
    write_field(&mut bytes, "mode", mode.name());
    write_field(&mut bytes, "kv_type", kv_type.name());
    write_field(&mut bytes, "isa", identity);
    write_field(&mut bytes, "placement", placement);
    write_field(&mut bytes, "slices", &slices.to_string());
    write_field(&mut bytes, "block", &block.to_string());
    if let Some(rounding) = rounding {
        write_field(&mut bytes, "rounding", rounding.name());
    }
    Name::root(&bytes)
}

/// The root of what is stored on disk, where "probably the same model" is not enough. `weights` is
/// a digest of all bytes of the weights; the machine's own part of the arithmetic is added.
pub(crate) fn disk_root(settings: &Settings, block: usize, weights: &str) -> Name {
    let root = block_root(settings, block);
    let mut bytes = root.to_bytes().to_vec();
    write_field(&mut bytes, "weights", weights);
    write_field(&mut bytes, "arithmetic", &kernels::ARITHMETIC.to_string());
    write_field(&mut bytes, "machine", &machine().to_string());
    Name::root(&bytes)
}

/// A digest of what the system's mathematical library contributes: rotary angles of fixed
/// positions.
fn machine() -> Name {
    const PAIRS: usize = 64;
    let frequencies: [f32; PAIRS] = std::array::from_fn(|pair| 1e4f32.powf(-(pair as f32) / 64.0));
    let (mut cos, mut sin) = ([0.0; PAIRS], [0.0; PAIRS]);
    let mut bytes: Vec<u8> = frequencies.iter().flat_map(|it| it.to_le_bytes()).collect();
    for position in [1, 31, 4095, 131_071, 1_000_003] {
        kernels::rope::angles(position, &frequencies, 1.0, &mut cos, &mut sin);
        bytes.extend(cos.iter().chain(&sin).flat_map(|value| value.to_le_bytes()));
    }
    Name::root(&bytes)
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
    use crate::CacheRounding;
    use backend::{KvType, Mode};

    fn settings() -> Settings {
        Settings {
            checkpoint: "0123abcd".into(),
            mode: Mode::Fast,
            kv_type: KvType::Bf16,
            identity: "avx512bf16".into(),
            placement: "fedc".into(),
            slices: 2,
            rounding: None,
        }
    }

    #[test]
    fn block_names_do_not_depend_on_source_names() {
        let root = block_root(&settings(), 32);
        assert_eq!(root.to_string(), "826c98cc240859f7797b4eb0fe009bc4");
    }

    #[test]
    fn weights_and_settings_change_the_root_on_disk() {
        let root = disk_root(&settings(), 32, "00ff");
        assert_eq!(disk_root(&settings(), 32, "00ff"), root);
        let exact = Settings { mode: Mode::Exact, ..settings() };
        let others = [
            block_root(&settings(), 32),
            disk_root(&settings(), 32, "00fe"),
            disk_root(&settings(), 16, "00ff"),
            disk_root(&exact, 32, "00ff"),
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
            Settings { identity: "avx512".into(), ..settings() },
            Settings { placement: "fed".into(), ..settings() },
            Settings { slices: 1, ..settings() },
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
