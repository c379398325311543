//! Weights on their way to the device.

use crate::gpu::Words;
use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::form::InputForm;
use crate::webgpu::held::matrices::MatrixPart;
use crate::webgpu::held::pack::pack_row;
use backend::{Error, MatrixSpec};
use kernels::Isa;

/// Most words of a chunk of memory that matrices share.
const CHUNK: usize = 1 << 28;
/// Words that are packed at a time.
const PIECE: usize = 1 << 22;
/// Words after which the host waits for the device, which then frees what they were sent through.
const BURST: usize = 1 << 24;

impl WebGpu {
    /// Uploads the weights that wait for it.
    ///
    /// # Errors
    /// If the device's memory does not suffice for them and the inputs of their products.
    pub(crate) fn upload(&mut self) -> Result<(), Error> {
        if self.matrices.waiting.is_empty() {
            return Ok(());
        }
        self.gpu.submit();
        let waiting = std::mem::take(&mut self.matrices.waiting);
        self.place(&waiting)?;
        let isa = Isa::detect().map_err(Error::Isa)?;
        let mut sent = 0;
        for (index, spec) in waiting {
            self.upload_matrix(index, &spec, isa, &mut sent)?;
        }
        let orders: Vec<u32> =
            self.matrices.orders.iter().flat_map(|(order, _)| order.iter().copied()).collect();
        let kept = self.matrices.order_words.as_ref().map_or(0, Words::len);
        if orders.len() > kept {
            let made = self.gpu.filled(&orders)?;
            if let Some(old) = self.matrices.order_words.replace(made) {
                self.gpu.free(old);
            }
        }
        self.reserve_for_buffers()
    }

    /// Allocates memory for matrices: one after the other while a kernel can see all of it.
    fn place(&mut self, waiting: &[(usize, MatrixSpec)]) -> Result<(), Error> {
        let most = self.gpu.most_bound_words().min(CHUNK);
        let mut sizes = Vec::new();
        let first_chunk = self.matrices.chunks.len();
        for (index, _) in waiting {
            let weights = &mut self.matrices.all[*index];
            let row_words = weights.form.row_words(weights.cols).max(1);
            let most_rows = (most / row_words).max(1);
            let mut left = weights.rows;
            while left > 0 {
                let rows = left.min(most_rows);
                let words = rows * row_words;
                if sizes.last().is_none_or(|size| size + words > most) {
                    sizes.push(0);
                }
                let chunk = sizes.len() - 1;
                let at = sizes[chunk];
                sizes[chunk] += words;
                weights.parts.push(MatrixPart { chunk: first_chunk + chunk, at, rows });
                left -= rows;
            }
        }
        for size in sizes {
            let made = self.gpu.zeroed(size)?;
            self.matrices.chunks.push(made);
        }
        Ok(())
    }

    /// Packs the rows of a matrix and sends them to its places. `sent` counts words since the host
    /// waited for the device.
    fn upload_matrix(
        &mut self,
        index: usize,
        spec: &MatrixSpec,
        isa: Isa,
        sent: &mut usize,
    ) -> Result<(), Error> {
        let (row_bytes, weights) = (spec.row_bytes()?, &self.matrices.all[index]);
        let (form, cols, parts) = (weights.form, weights.cols, weights.parts.clone());
        let row_words = form.row_words(cols).max(1);
        let mut first = 0;
        for part in parts {
            let chunk = self.matrices.chunks[part.chunk].clone();
            let step = (PIECE / row_words).max(1);
            for start in (0..part.rows).step_by(step) {
                let rows = step.min(part.rows - start);
                let range = (first + start) * row_bytes..(first + start + rows) * row_bytes;
                let bytes = spec.bytes.read(range);
                let mut words = vec![0; rows * row_words];
                share_rows(&mut words, row_words, |row, words| {
                    let bytes = &bytes[row * row_bytes..][..row_bytes];
                    pack_row(form.row, spec.ty, cols, bytes, isa, words);
                });
                self.gpu.write(&chunk, part.at + start * row_words, &words);
                *sent += words.len();
                if *sent > BURST {
                    *sent = 0;
                    self.gpu.read(&chunk, part.at, &mut [0]);
                }
            }
            first += part.rows;
        }
        spec.bytes.not_needed(0..spec.bytes.len());
        Ok(())
    }

    /// Allocates workspace for the inputs of products: buffers as wide as rows of weights.
    fn reserve_for_buffers(&mut self) -> Result<(), Error> {
        let inputs = self.buffers.iter().map(|buffer| (buffer.words.len(), buffer.width));
        let inputs: Vec<_> = inputs.filter(|(_, width)| *width > 0).collect();
        for form in [InputForm::Bytes, InputForm::Floats] {
            let takes = |width: usize| {
                let mut all = self.matrices.all.iter();
                all.any(|weights| weights.form.inputs == form && weights.cols == width)
            };
            let words = |&(len, width): &(usize, usize)| len / width * form.words(width);
            let most = inputs.iter().filter(|(_, width)| takes(*width)).map(words).max();
            if let Some(words) = most {
                self.input_words(form, words)?;
            }
        }
        Ok(())
    }
}

/// Calls `pack` with the number and words of each row, on all CPUs.
fn share_rows(words: &mut [u32], row_words: usize, pack: impl Fn(usize, &mut [u32]) + Sync) {
    let count = words.len() / row_words;
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let each = count.div_ceil(threads).max(16);
    std::thread::scope(|scope| {
        for (part, words) in words.chunks_mut(each * row_words).enumerate() {
            let pack = &pack;
            let mut work = move || {
                for (row, words) in words.chunks_exact_mut(row_words).enumerate() {
                    pack(part * each + row, words);
                }
            };
            if count <= each {
                work();
            } else {
                scope.spawn(work);
            }
        }
    });
}
