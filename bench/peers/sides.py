"""One measurement of a peer in its own process: `compare.py` starts it and reads its single line of JSON.

    python sides.py llama.cpp MODEL --phase decode --tokens 4096 --batch 1 --variant flash,repack
    python sides.py mistral.rs MODEL --phase prefill --tokens 512
    python sides.py llama.cpp MODEL --phase load

`prefill` gives the tokens per second of a prompt of `--tokens`; `decode` the tokens per second of all sequences together
with `--tokens` in the cache of each; `load` the seconds from opening the file to the first token after a prompt of
`--tokens`; `cold` the rates of a prompt and of what follows it, both for the first time, of llama.cpp only. The first two run once
untimed before the timed run. The only Python code inside the measured time is a loop over steps.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path

PIECE = 2048
"""Prompt tokens in one call of llama.cpp, its default; llama.cpp splits them into chunks of 512."""


class LlamaCpp:
    """A model in llama.cpp, through its C functions."""

    VARIANTS = ["flash,repack", "flash", "repack", "plain"]

    def __init__(self, args, context):
        import llama_cpp

        self.lib = lib = llama_cpp
        # Kept, or the callback would be collected while llama.cpp holds it.
        self.log = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self.log, None)
        self.started = time.perf_counter()
        lib.llama_backend_init()
        model = lib.llama_model_default_params()
        model.n_gpu_layers = 0
        model.use_extra_bufts = "repack" in args.variant
        self.model = lib.llama_model_load_from_file(args.model.encode(), model)
        if not self.model:
            sys.exit(f"{args.model}: llama.cpp does not load it")
        params = lib.llama_context_default_params()
        params.n_ctx = context * args.batch
        params.n_seq_max = args.batch
        params.n_threads = params.n_threads_batch = args.threads
        params.flash_attn_type = int("flash" in args.variant)
        params.n_ubatch = args.rows
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit(f"{args.model}: llama.cpp makes no context")
        self.tokens = random_ids(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model)), context)
        self.batch = lib.llama_batch_init(PIECE, 0, 1)
        self.sequences = range(args.batch)

    def forget(self, position):
        """Drops the cached tokens from `position` on."""
        memory = self.lib.llama_get_memory(self.context)
        for sequence in self.sequences:
            self.lib.llama_memory_seq_rm(memory, sequence, position, -1)

    def feed(self, count):
        """Computes the first `count` tokens of each sequence, with logits for the last of them."""
        for sequence in self.sequences:
            for start in range(0, count, PIECE):
                positions = [(sequence, at, at + 1 == count) for at in range(start, min(start + PIECE, count))]
                self.compute(positions)

    def step(self, position):
        """Computes the token at `position` of all sequences together, with logits."""
        self.compute([(sequence, position, True) for sequence in self.sequences])

    def compute(self, positions):
        batch = self.batch
        for at, (sequence, position, output) in enumerate(positions):
            batch.token[at] = self.tokens[position]
            batch.pos[at] = position
            batch.n_seq_id[at] = 1
            batch.seq_id[at][0] = sequence
            batch.logits[at] = output
        batch.n_tokens = len(positions)
        if self.lib.llama_decode(self.context, batch) != 0:
            sys.exit("llama.cpp: llama_decode fails")
        self.lib.llama_synchronize(self.context)

    def prefill(self, args):
        self.feed(args.tokens)
        self.forget(0)
        start = time.perf_counter()
        self.feed(args.tokens)
        return args.tokens / (time.perf_counter() - start)

    def decode(self, args):
        depth = max(args.tokens, 1)
        self.feed(depth)
        self.step(depth)
        start = time.perf_counter()
        # One step was the untimed run: a recurrent state cannot be taken back.
        for position in range(depth + 1, depth + 1 + args.gen):
            self.step(position)
        return args.batch * args.gen / (time.perf_counter() - start)

    def load(self, args):
        self.feed(args.tokens)
        return time.perf_counter() - self.started

    def cold(self, args):
        start = time.perf_counter()
        self.feed(args.tokens)
        first = time.perf_counter()
        for position in range(args.tokens, args.tokens + args.gen):
            self.step(position)
        decode = time.perf_counter() - first
        return {"prompt": args.tokens / (first - start), "decode": args.gen / decode}

    def version(self):
        info = self.lib.llama_print_system_info().decode()
        return f"llama.cpp {self.lib.llama_version().decode()} (llama-cpp-python {self.lib.__version__}); {info}"


class MistralRs:
    """A model in mistral.rs, through its Python package. The package takes text only: prompts are random letters, each of
    which is one token in the vocabularies of `gannet synth`; in others some merge, which makes prompts shorter."""

    VARIANTS = ["default"]

    def __init__(self, args, context):
        import mistralrs

        self.lib = mistralrs
        self.started = time.perf_counter()
        path = Path(args.model)
        which = mistralrs.Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name)
        self.runner = mistralrs.Runner(which, max_seqs=args.batch, prefix_cache_n=0, token_source="none")

    def ask(self, tokens, generate):
        """The usage, with times, that the engine reports for a prompt of `tokens` and an answer of `generate` tokens."""
        prompt = "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=tokens))
        request = self.lib.CompletionRequest(
            prompt=prompt, model="default", max_tokens=generate, temperature=0.0, ignore_eos=True
        )
        usage = self.runner.send_completion_request(request).usage
        if usage.completion_tokens != generate:
            sys.exit(f"mistral.rs: generates {usage.completion_tokens} tokens, not {generate}")
        return usage

    def prefill(self, args):
        self.ask(args.tokens, 1)
        return self.ask(args.tokens, 1).avg_prompt_tok_per_sec

    def decode(self, args):
        if args.batch > 1:
            sys.exit("mistral.rs: its Python package takes one request at a time")
        depth = max(args.tokens, 1)
        self.ask(depth, 2)
        return self.ask(depth, args.gen).avg_compl_tok_per_sec

    def load(self, args):
        self.ask(args.tokens, 1)
        return time.perf_counter() - self.started

    def version(self):
        from importlib.metadata import version

        return f"mistral.rs {version('mistralrs')}"


class OpenVino:
    """A model in OpenVINO GenAI, which reads GGUF files of Llama, Qwen2 and Qwen3: Q8_0 becomes int8 weights, Q4_0, Q4_1
    and Q4_K int4, all with the scales of the file."""

    VARIANTS = ["default"]

    def __init__(self, args, context):
        import numpy
        import openvino
        import openvino_genai

        self.lib, self.openvino, self.numpy = openvino_genai, openvino, numpy
        self.started = time.perf_counter()
        self.pipeline = openvino_genai.LLMPipeline(args.model, "CPU", INFERENCE_NUM_THREADS=args.threads)

    def ask(self, tokens, generate):
        """The times of a prompt of `tokens` random tokens, which no cache holds, and an answer of `generate` tokens."""
        ids = self.numpy.random.randint(0, 256, (1, tokens), dtype=self.numpy.int64)
        config = self.lib.GenerationConfig(max_new_tokens=generate, ignore_eos=True, do_sample=False)
        config.apply_chat_template = False
        metrics = self.pipeline.generate(self.openvino.Tensor(ids), config).perf_metrics
        if metrics.get_num_generated_tokens() != generate:
            sys.exit(f"OpenVINO: generates {metrics.get_num_generated_tokens()} tokens, not {generate}")
        return metrics

    def prefill(self, args):
        self.ask(args.tokens, 1)
        return 1000 * args.tokens / self.ask(args.tokens, 1).get_ttft().mean

    def decode(self, args):
        if args.batch > 1:
            sys.exit("OpenVINO: one request at a time")
        depth = max(args.tokens, 1)
        self.ask(depth, 2)
        # The first token is that of the prompt.
        return 1000 / self.ask(depth, args.gen + 1).get_tpot().mean

    def load(self, args):
        self.ask(args.tokens, 1)
        return time.perf_counter() - self.started

    def version(self):
        return f"OpenVINO GenAI {self.lib.__version__}"


SIDES = {"llama.cpp": LlamaCpp, "mistral.rs": MistralRs, "openvino": OpenVino}


def random_ids(vocabulary, count):
    random.seed(0)
    return [random.randrange(vocabulary) for _ in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("model")
    parser.add_argument("--phase", choices=["prefill", "decode", "load", "cold"], required=True)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--gen", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variant", default="")
    parser.add_argument("--rows", type=int, default=512, help="rows that llama.cpp computes together")
    args = parser.parse_args()
    context = args.tokens + (args.gen if args.phase in ("decode", "cold") else 0)
    side = SIDES[args.side](args, (context + 1 + 255) // 256 * 256)
    value = getattr(side, args.phase)(args)
    if args.phase != "cold" and not value > 0:
        sys.exit(f"{args.side}: {args.phase} {args.tokens} is too short to be timed")
    print(json.dumps({"value": value, "version": side.version()}))


if __name__ == "__main__":
    main()
