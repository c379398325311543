//! Encoders: a text has the same vector in any company, and on any number of threads.

use crate::checkpoints::{open, random_of};
use backend::Mode;
use engine::{
    Embed, EngineHandle, EngineOptions, Event, KvMemory, LoadOptions, Request, Runner, SubmitError,
    start,
};
use formats::Checkpoint;
use formats::Pooling;
use formats::gguf::GgufWriter;

/// Layers of both kinds of ModernBERT.
const LAYERS: usize = 4;

fn text(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 41 + i / 5 + seed) % 131).collect()
}

fn request(prompt: Vec<u32>, pooling: Pooling) -> Request {
    let types = (0..prompt.len()).map(|at| u32::from(at > prompt.len() / 2)).collect();
    let embed = Some(Embed { pooling: Some(pooling), ..Embed::default() });
    Request { prompt, embed, types, ..Request::default() }
}

/// Texts of many lengths, some longer than the prompts of a step.
fn requests(types: usize) -> Vec<Request> {
    let poolings = [Pooling::Mean, Pooling::Cls, Pooling::Last, Pooling::Max];
    let lens = [3, 70, 1, 129, 32, 33, 200, 16, 64, 9, 250, 2];
    let requests = lens.iter().zip(0..).map(|(&len, seed)| {
        let one = request(text(len, seed), poolings[seed as usize % poolings.len()]);
        if types > 1 { one } else { Request { types: Vec::new(), ..one } }
    });
    requests.collect()
}

fn options(mode: Mode, threads: usize, chunk: usize) -> LoadOptions {
    let (kv_memory, chunk) = (KvMemory::OneSequence, Some(chunk));
    LoadOptions { mode, threads, chunk, kv_memory, parallel: 4, ..LoadOptions::default() }
}

fn engine(checkpoint: &Checkpoint, options: &LoadOptions) -> EngineHandle {
    let running = EngineOptions { running: 8, ..EngineOptions::default() };
    start(Runner::load(checkpoint, options).unwrap(), running).0
}

/// The bits of the vectors of all requests, which run together.
fn together(engine: &EngineHandle, requests: &[Request]) -> Vec<Vec<u32>> {
    let running: Vec<_> =
        requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
    let vector = |mut generation: engine::Generation| {
        let mut found = None;
        while let Some(event) = generation.next_blocking() {
            if let Event::Embedding(vector) = event {
                found = Some(vector.into_iter().map(f32::to_bits).collect());
            }
        }
        found.expect("a vector")
    };
    running.into_iter().map(vector).collect()
}

#[test]
fn a_text_has_the_same_bits_in_any_company() {
    for architecture in formats::families::encoders() {
        let (checkpoint, _folder) = random_of(architecture, LAYERS);
        let types = checkpoint.config().hyperparameters().encoder.as_ref().unwrap().token_types;
        let requests = requests(types);
        for mode in [Mode::Exact, Mode::Fast] {
            let alone = engine(&checkpoint, &options(mode, 1, 512));
            let want: Vec<_> = requests
                .iter()
                .flat_map(|request| together(&alone, std::slice::from_ref(request)))
                .collect();
            for (threads, chunk) in [(2, 512), (2, 100), (1, 40), (3, 1)] {
                let engine = engine(&checkpoint, &options(mode, threads, chunk));
                let got = together(&engine, &requests);
                assert_eq!(got, want, "{architecture} {mode:?} {threads} {chunk}");
                let again = together(&engine, &requests);
                assert_eq!(again, want, "{architecture}: what was computed before has no effect");
            }
            let block = LoadOptions { block: 128, ..options(mode, 2, 300) };
            let engine = engine(&checkpoint, &block);
            assert_eq!(together(&engine, &requests), want, "{architecture} {mode:?} blocks");
        }
    }
}

/// The weights of a checkpoint in Hugging Face's layout as a GGUF file, and the folder it lies in.
fn as_gguf(checkpoint: &Checkpoint) -> (Checkpoint, tempfile::TempDir) {
    let config = checkpoint.config();
    let views = checkpoint.gguf_tensors().unwrap();
    let mut writer = GgufWriter::new();
    config.to_gguf(&mut writer).unwrap();
    for view in &views {
        writer.plan(&config.gguf_tensor_name(&view.name), view.ty, &view.shape).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut stream = writer.create(&path).unwrap();
    for view in &views {
        stream.write(&view.bytes().read(0..view.bytes().len())).unwrap();
    }
    stream.finish().unwrap();
    (open(&path), folder)
}

#[test]
fn a_gguf_file_has_the_bits_of_what_it_was_made_from() {
    for architecture in formats::families::encoders() {
        let (source, _folder) = random_of(architecture, LAYERS);
        let (made, _folder) = as_gguf(&source);
        let types = source.config().hyperparameters().encoder.as_ref().unwrap().token_types;
        let requests = &requests(types)[..6];
        for mode in [Mode::Exact, Mode::Fast] {
            let [made, source] = [&made, &source]
                .map(|checkpoint| together(&engine(checkpoint, &options(mode, 2, 512)), requests));
            assert_eq!(made, source, "{architecture} {mode:?}");
        }
    }
}

#[test]
fn the_reference_device_computes_the_same() {
    for architecture in formats::families::encoders() {
        let (checkpoint, _folder) = random_of(architecture, LAYERS);
        let types = checkpoint.config().hyperparameters().encoder.as_ref().unwrap().token_types;
        let requests = &requests(types)[..6];
        let device = backend::DeviceChoice { device: &backend::REFERENCE, which: None };
        let exact = options(Mode::Exact, 2, 512);
        let got = together(&engine(&checkpoint, &exact), requests);
        let want = together(&engine(&checkpoint, &LoadOptions { device, ..exact }), requests);
        for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
            let (got, want) = (f32::from_bits(*got), f32::from_bits(*want));
            assert!((got - want).abs() < 1e-4, "{architecture}: {got} is not {want}");
        }
    }
}

#[test]
fn later_tokens_and_types_change_a_vector() {
    for architecture in formats::families::encoders() {
        let (checkpoint, _folder) = random_of(architecture, LAYERS);
        let engine = engine(&checkpoint, &options(Mode::Exact, 1, 512));
        let types = checkpoint.config().hyperparameters().encoder.as_ref().unwrap().token_types;
        let mut other = text(100, 0);
        other[99] = 5;
        let plain = |prompt| Request { types: Vec::new(), ..request(prompt, Pooling::Cls) };
        let requests = [plain(text(100, 0)), plain(other), request(text(100, 0), Pooling::Cls)];
        let count = if types > 1 { 3 } else { 2 };
        let vectors = together(&engine, &requests[..count]);
        assert_ne!(vectors[0], vectors[1], "{architecture}: the last token");
        assert!(types < 2 || vectors[0] != vectors[2], "{architecture}: types");
    }
}

#[test]
fn what_an_encoder_cannot_do_is_refused() {
    let (checkpoint, _folder) = random_of("bert", 1);
    let engine = engine(&checkpoint, &options(Mode::Fast, 1, 512));
    let refused = |request: Request, word: &str| {
        let error = engine.submit(request).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        error
    };
    let good = request(text(9, 0), Pooling::Mean);
    let embed = good.embed.unwrap();
    refused(Request { embed: None, ..good.clone() }, "generates no text");
    let scores = Some(Embed { scores: true, ..embed });
    refused(Request { embed: scores, ..good.clone() }, "no head");
    for dimensions in [0, 73] {
        let embed = Some(Embed { dimensions: Some(dimensions), ..embed });
        refused(Request { embed, ..good.clone() }, "dimensions must be from 1 to 72");
    }
    refused(Request { types: vec![0; 8], ..good.clone() }, "types must be");
    refused(Request { types: vec![2; 9], ..good.clone() }, "types must be");
    let long = refused(request(text(257, 0), Pooling::Mean), "257");
    assert!(matches!(long, SubmitError::ContextLength { context_length: 256, .. }));
    assert_eq!(together(&engine, &[request(text(256, 0), Pooling::Mean)])[0].len(), 72);
}

#[test]
fn a_vector_is_cut_before_it_is_normalised() {
    let (checkpoint, _folder) = random_of("xlm_roberta", 1);
    let engine = engine(&checkpoint, &options(Mode::Exact, 1, 512));
    let whole = Request { types: Vec::new(), ..request(text(20, 0), Pooling::Mean) };
    let embed = whole.embed.map(|it| Embed { normalize: true, dimensions: Some(10), ..it });
    let vectors = together(&engine, &[whole.clone(), Request { embed, ..whole }]);
    let [whole, cut] = [0, 1].map(|at| vectors[at].iter().map(|bits| f32::from_bits(*bits)));
    let whole: Vec<f32> = whole.take(10).collect();
    let length = whole.iter().map(|value| value * value).sum::<f32>().sqrt();
    let cut: Vec<f32> = cut.collect();
    assert_eq!(cut.len(), 10);
    assert!(cut.iter().zip(whole).all(|(cut, value)| (cut - value / length).abs() < 1e-6));
}

#[test]
fn contexts_end_where_tables_of_positions_do() {
    for (architecture, most) in [("bert", 256), ("xlm_roberta", 256), ("gpt2", 1024)] {
        let (checkpoint, _folder) = random_of(architecture, 1);
        let load = |context| {
            let options = LoadOptions { context: Some(context), ..options(Mode::Exact, 1, 512) };
            Runner::load(&checkpoint, &options).map(|runner| runner.info().context_length)
        };
        assert_eq!(load(most).unwrap(), most, "{architecture}");
        let error = load(most + 1).unwrap_err().to_string();
        assert!(error.contains(&format!("{most} positions")), "{architecture}: {error}");
    }
}
