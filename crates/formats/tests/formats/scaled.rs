//! NVFP4 tensors of GGUF files with the scale of a matrix.

use crate::common::altered::{bytes, joined};
use base::Rng;
use formats::TensorView;
use formats::gguf::GgufWriter;
use kernels::quant::{F16, F32, NVFP4, QuantType};
use std::path::PathBuf;

/// A tensor to be written.
type Tensor = (&'static str, &'static QuantType, Vec<usize>, Vec<u8>);

/// Random NVFP4 blocks: any codes, and scales from zero to the largest.
fn weights(name: &'static str, shape: &[usize]) -> Tensor {
    let mut rng = Rng::new(shape.len() as u64);
    let mut data = vec![0; NVFP4.bytes_for(shape.iter().product()).unwrap()];
    for block in data.chunks_exact_mut(NVFP4.block_bytes) {
        block.fill_with(|| rng.next_u64() as u8);
        block[..4].iter_mut().for_each(|scale| *scale &= 0x7f);
    }
    (name, &NVFP4, shape.to_vec(), data)
}

fn floats(name: &'static str, values: &[f32]) -> Tensor {
    let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    (name, &F32, vec![values.len()], data)
}

fn write(tensors: &[Tensor]) -> (PathBuf, tempfile::TempDir) {
    let mut writer = GgufWriter::new();
    for (name, ty, shape, _) in tensors {
        writer.plan(name, ty, shape).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scaled.gguf");
    let mut stream = writer.create(&path).unwrap();
    tensors.iter().for_each(|tensor| stream.write(&tensor.3).unwrap());
    stream.finish().unwrap();
    (path, folder)
}

fn open(tensors: &[Tensor]) -> Result<Vec<TensorView>, String> {
    let (path, _folder) = write(tensors);
    joined(&path).map_err(|error| error.to_string())
}

/// The values of blocks without a scale of the matrix.
fn plain(tensor: &Tensor) -> Vec<f32> {
    let mut values = vec![0.0; tensor.2.iter().product()];
    (NVFP4.dequantize.unwrap())(&tensor.3, &mut values);
    values
}

#[test]
fn the_scale_of_a_matrix_multiplies_its_values() {
    let matrix = weights("blk.0.attn_q.weight", &[3, 128]);
    let experts = weights("blk.0.ffn_up_exps.weight", &[4, 2, 192]);
    let more = weights("blk.1.ffn_up_exps.weight", &[4, 2, 64]);
    let alone = weights("blk.1.attn_q.weight", &[1, 64]);
    let factors = [0.25, -0.0123, 3.5, 0.0];
    let views = open(&[
        matrix.clone(),
        floats("blk.0.attn_q.scale", &[0.0123]),
        floats("blk.0.attn_q.input_scale", &[7.0]),
        floats("blk.0.ffn_up_exps.scale", &factors),
        experts.clone(),
        more.clone(),
        floats("blk.1.ffn_up_exps.scale", &[0.5]),
        alone.clone(),
        floats("blk.1.attn_k.scale", &[1.0]),
    ])
    .unwrap();
    let names: Vec<_> = views.iter().map(|view| view.name.as_str()).collect();
    let kept = [matrix.0, experts.0, more.0, alone.0, "blk.1.attn_k.scale"];
    assert_eq!(names, kept, "scales of what is not NVFP4 stay");
    let cases = [(&matrix, vec![0.0123]), (&experts, factors.to_vec()), (&more, vec![0.5])];
    for (view, (tensor, factors)) in views.iter().zip(cases) {
        assert_eq!((view.ty.name, &view.shape), ("nvfp4_32", &tensor.2));
        let got = view.to_f32().unwrap();
        let share = got.len() / factors.len();
        for (at, (got, plain)) in got.iter().zip(plain(tensor)).enumerate() {
            let want = f64::from(plain) * f64::from(factors[at / share]);
            let off = (f64::from(*got) - want).abs();
            assert!(off <= 1.2e-7 * want.abs(), "{}[{at}]: {got} is not {want}", tensor.0);
        }
        // Rows that are read apart have the same bytes.
        let all = bytes(view);
        let row = all.len() / view.shape.iter().rev().skip(1).product::<usize>();
        let apart: Vec<_> = (0..all.len()).step_by(row).collect();
        let source = view.bytes();
        for at in apart {
            assert_eq!(*source.read(at..at + row), all[at..at + row]);
        }
    }
    assert_eq!((views[3].ty.name, bytes(&views[3])), ("nvfp4", alone.3));
}

#[test]
fn scales_that_a_router_has_are_left_to_it() {
    let down = weights("blk.0.ffn_down_exps.weight", &[2, 1, 64]);
    let scale = floats("blk.0.ffn_down_exps.scale", &[2.0, 3.0]);
    let views = open(&[down.clone(), scale.clone()]).unwrap();
    assert_eq!((views.len(), views[0].ty.name), (1, "nvfp4_32"));
    let views = open(&[down, scale, floats("blk.0.ffn_gate_inp.scale", &[1.0])]).unwrap();
    assert_eq!((views.len(), views[0].ty.name), (3, "nvfp4"));
}

#[test]
fn scales_that_do_not_fit_are_refused() {
    let fails = |tensor: Tensor, scale: Tensor, problem: &str| {
        let name = scale.0;
        let error = open(&[tensor, scale]).unwrap_err();
        assert!(error.contains(problem) && error.contains(name), "{error}");
    };
    let matrix = || weights("a.weight", &[2, 64]);
    fails(matrix(), floats("a.scale", &[1.0, 2.0]), "expected 1 value, found 2");
    let experts = weights("a.weight", &[3, 2, 64]);
    fails(experts, floats("a.scale", &[1.0, 2.0]), "expected 1 or 3 values, found 2");
    fails(matrix(), floats("a.scale", &[f32::NAN]), "expected finite scales");
    fails(matrix(), floats("a.scale", &[1e31]), "expected scales below 1e30");
    fails(matrix(), ("a.scale", &F16, vec![1], vec![0; 2]), "type f32");
}
