//! Checkpoints of `tests/data/native` with changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use formats::safetensors::SafetensorsWriter;
use formats::{Error, ModelFiles, TensorView, native};
use kernels::quant::QuantType;

const CONFIG: &str = "config.json";

pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/native")
}

pub fn joined(folder: &Path) -> Result<Vec<TensorView>, Error> {
    native::join(&ModelFiles::open(folder)?)
}

pub fn bytes(view: &TensorView) -> Vec<u8> {
    let bytes = view.bytes();
    bytes.read(0..bytes.len()).into_owned()
}

/// A tensor to be written.
pub struct Tensor {
    pub name: String,
    pub ty: &'static QuantType,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

/// A checkpoint of the data with changes.
pub struct Altered {
    tensors: Vec<Tensor>,
    /// JSON files by name.
    files: BTreeMap<String, String>,
}

impl Altered {
    pub fn new(folder: &str) -> Self {
        let folder = data().join(folder);
        let tensors = ModelFiles::open(&folder).unwrap();
        let tensor = |view: &TensorView| Tensor {
            name: view.source_name.clone(),
            ty: view.ty,
            shape: view.shape.clone(),
            data: bytes(view),
        };
        let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let read = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        };
        let files = files.map(read).collect();
        Self { tensors: tensors.tensors().iter().map(tensor).collect(), files }
    }

    pub fn tensor(&mut self, end: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name.ends_with(end)).unwrap()
    }

    pub fn without(mut self, end: &str) -> Self {
        self.tensors.retain(|tensor| !tensor.name.ends_with(end));
        self
    }

    /// The first bytes of a tensor are others.
    pub fn with(mut self, end: &str, data: &[u8]) -> Self {
        self.tensor(end).data[..data.len()].copy_from_slice(data);
        self
    }

    /// A tensor has another shape, and as many bytes as it takes.
    pub fn shaped(mut self, end: &str, shape: &[usize]) -> Self {
        let tensor = self.tensor(end);
        tensor.data.resize(tensor.ty.bytes_for(shape.iter().product()).unwrap(), 0);
        tensor.shape = shape.to_vec();
        self
    }

    /// config.json has `to` in place of `from`.
    pub fn config(mut self, from: &str, to: &str) -> Self {
        let config = self.files.get_mut(CONFIG).unwrap();
        assert!(config.contains(from), "{config}");
        *config = config.replace(from, to);
        self
    }

    /// `quantization_config` is `settings`.
    pub fn settings(self, settings: &str) -> Self {
        self.file(CONFIG, &format!("{{\"quantization_config\": {settings}}}"))
    }

    /// A file of settings has other contents.
    pub fn file(mut self, name: &str, contents: &str) -> Self {
        self.files.insert(name.into(), contents.into());
        self
    }

    /// No file has settings.
    pub fn without_settings(mut self) -> Self {
        self.files.clear();
        self.file(CONFIG, "{}")
    }

    /// Joins the tensors.
    pub fn join(&self) -> Result<Vec<TensorView>, Error> {
        let folder = tempfile::tempdir().unwrap();
        for (name, contents) in &self.files {
            std::fs::write(folder.path().join(name), contents).unwrap();
        }
        let mut writer = SafetensorsWriter::new();
        for tensor in &self.tensors {
            writer.plan(&tensor.name, tensor.ty, &tensor.shape).unwrap();
        }
        let mut stream = writer.create(&folder.path().join("model.safetensors")).unwrap();
        self.tensors.iter().for_each(|tensor| stream.write(&tensor.data).unwrap());
        stream.finish().unwrap();
        joined(folder.path())
    }

    /// Joining fails with an error that says so.
    pub fn fails(self, expected: &str) {
        let text = self.join().expect_err(expected).to_string();
        assert!(text.contains(expected), "{text}\nis not: {expected}");
    }
}
