//! The GGUF form: `NAME.in_sum2` has the sums of a tensor, `NAME.counts` the numbers of rows. Keys
//! and names are those of llama.cpp, except for `gannet.` keys.

use std::collections::HashMap;
use std::path::Path;

use kernels::quant::F32;

use crate::error::{Error, Result};
use crate::gguf::{Array, GgufFile, GgufWriter, Metadata, Value};
use crate::imatrix::matrix::{Imatrix, ImatrixEntry};
use crate::tensor::TensorView;

const TYPE: &str = "general.type";
const DATASETS: &str = "imatrix.datasets";
const CHUNKS: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
const TEXT: &str = "gannet.imatrix.text_sha256";
const MODEL: &str = "gannet.imatrix.model_sha256";
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

pub(super) fn open(path: &Path) -> Result<Imatrix> {
    let file = GgufFile::open(path)?;
    let mut imatrix = header(file.metadata())?;
    let by_name: HashMap<&str, &TensorView> =
        file.tensors().iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    for sums in file.tensors() {
        let Some(name) = sums.name.strip_suffix(SUMS) else { continue };
        let counts = format!("{name}{COUNTS}");
        let missing = || {
            let problem = format!("expected with {SUMS}, found no such tensor");
            Error::tensor(path, &counts, problem)
        };
        let counts = by_name.get(counts.as_str()).ok_or_else(missing)?;
        let entry = ImatrixEntry { sums: floats(sums)?, counts: floats(counts)? };
        imatrix.insert(path, name, entry)?;
    }
    match imatrix.entries.is_empty() {
        true => Err(Error::file(path, format!("expected tensors named *{SUMS}, found none"))),
        false => Ok(imatrix),
    }
}

fn header(metadata: &Metadata) -> Result<Imatrix> {
    let kind = metadata.opt_text(TYPE)?.unwrap_or("model");
    if kind != "imatrix" {
        let problem = format!("expected imatrix, found {}", crate::error::shown(kind));
        return Err(metadata.error(TYPE, problem));
    }
    let datasets = metadata.opt_strings(DATASETS)?;
    let digest = |key| Ok::<_, Error>(metadata.opt_text(key)?.map(str::to_owned));
    Ok(Imatrix {
        datasets: datasets.into_iter().flat_map(|names| names.iter().map(str::to_owned)).collect(),
        chunks: metadata.opt_count(CHUNKS)?.unwrap_or(0),
        chunk_size: metadata.opt_count(CHUNK_SIZE)?,
        text_digest: digest(TEXT)?,
        model_digest: digest(MODEL)?,
        ..Imatrix::default()
    })
}

fn floats(tensor: &TensorView) -> Result<Vec<f32>> {
    if *tensor.ty != F32 {
        return Err(tensor.error(format!("expected type f32, found {}", tensor.ty)));
    }
    tensor.to_f32()
}

pub(super) fn write(imatrix: &Imatrix, path: &Path) -> Result<()> {
    let mut writer = GgufWriter::new();
    describe(imatrix, path, &mut writer)?;
    for (name, entry) in &imatrix.entries {
        entry.check().map_err(|problem| Error::tensor(path, name, problem))?;
        let matrices = entry.counts.len();
        let columns = entry.sums.len() / matrices;
        writer.plan(&format!("{name}{SUMS}"), &F32, &[matrices, columns])?;
        writer.plan(&format!("{name}{COUNTS}"), &F32, &[matrices, 1])?;
    }
    let mut stream = writer.create(path)?;
    for ImatrixEntry { sums, counts } in imatrix.entries.values() {
        let values = sums.iter().chain(counts).flat_map(|value| value.to_le_bytes());
        stream.write(&values.collect::<Vec<u8>>())?;
    }
    stream.finish()
}

fn describe(imatrix: &Imatrix, path: &Path, writer: &mut GgufWriter) -> Result<()> {
    let count = |key, count: usize| {
        let too_large = |_| Error::field(path, key, format!("{count} does not fit into 32 bits"));
        u32::try_from(count).map(Value::U32).map_err(too_large)
    };
    writer.set(TYPE, Value::String("imatrix".into()));
    writer.set(DATASETS, Value::Array(Array::Strings(imatrix.datasets.iter().collect())));
    writer.set(CHUNKS, count(CHUNKS, imatrix.chunks)?);
    if let Some(size) = imatrix.chunk_size {
        writer.set(CHUNK_SIZE, count(CHUNK_SIZE, size)?);
    }
    for (key, digest) in [(TEXT, &imatrix.text_digest), (MODEL, &imatrix.model_digest)] {
        if let Some(digest) = digest {
            writer.set(key, Value::String(digest.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Imatrix {
        let entry = |sums: &[f32], counts: &[f32]| ImatrixEntry {
            sums: sums.to_vec(),
            counts: counts.to_vec(),
        };
        Imatrix {
            datasets: vec!["a.txt".into(), "b.txt".into()],
            chunks: 3,
            chunk_size: Some(512),
            text_digest: Some("12ab".into()),
            model_digest: Some("34cd".into()),
            entries: [
                ("blk.0.ffn_up.weight".to_owned(), entry(&[1.5, 0.0, 2.0], &[7.0])),
                ("blk.0.experts.weight".to_owned(), entry(&[1.0, 2.0, 3.0, 4.0], &[1.0, 0.0])),
            ]
            .into(),
        }
    }

    #[test]
    fn what_is_written_reads_back_and_replaces_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("i.gguf");
        for imatrix in [sample(), Imatrix { chunk_size: None, text_digest: None, ..sample() }] {
            imatrix.write(&path).unwrap();
            assert_eq!(Imatrix::open(&path).unwrap(), imatrix);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        }
        let file = GgufFile::open(&path).unwrap();
        let shapes: Vec<_> = file.tensors().iter().map(|t| (&*t.name, &*t.shape)).collect();
        assert_eq!(shapes[0], ("blk.0.ffn_up.weight.in_sum2", &[1, 3][..]));
        assert_eq!(shapes[1], ("blk.0.ffn_up.weight.counts", &[1, 1][..]));
        assert_eq!(shapes[2], ("blk.0.experts.weight.in_sum2", &[2, 2][..]));
    }

    /// Opens a file of `kind` with these tensors of zeros.
    fn refused(kind: &str, tensors: &[(&str, &'static kernels::quant::QuantType)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("i.gguf");
        let mut writer = GgufWriter::new();
        writer.set(TYPE, Value::String(kind.into()));
        tensors.iter().for_each(|(name, ty)| writer.plan(name, ty, &[1, 32]).unwrap());
        let mut stream = writer.create(&path).unwrap();
        while let Some((_, bytes)) = stream.next() {
            stream.write(&vec![0; bytes]).unwrap();
        }
        stream.finish().unwrap();
        let message = Imatrix::open(&path).unwrap_err().to_string();
        assert!(message.contains("i.gguf"), "{message}");
        message
    }

    #[test]
    fn files_of_another_kind_or_with_parts_missing_are_refused_by_name() {
        assert!(refused("model", &[]).contains("general.type: expected imatrix, found model"));
        assert!(refused("imatrix", &[("a", &F32)]).contains("*.in_sum2, found none"));
        let alone = refused("imatrix", &[("a.in_sum2", &F32)]);
        assert!(alone.contains("tensor a.counts: expected with .in_sum2"), "{alone}");
        let other = [("a.in_sum2", &kernels::quant::BF16), ("a.counts", &F32)];
        assert!(refused("imatrix", &other).contains("a.in_sum2: expected type f32, found bf16"));
    }
}
