"""Compares the rate of embeddings with sentence-transformers on PyTorch.

    pip install torch sentence-transformers
    python embeddings.py --gannet ../../target/release/gannet --threads 2 --runs 5

Makes models of random weights in the shapes of BERT-base and MiniLM-L6, and 256 texts of 16 to 256 tokens.
A side is a process of its own, which embeds all texts once untimed and then once timed: Gannet through
/v1/embeddings, in one request, sentence-transformers through `encode` with batches of 32 texts, which it
sorts by length. The sides take turns. The table has medians over the rounds, and as ratio the median of
the ratios within the rounds; the last column is the smallest cosine of two vectors of one text.
"""

import argparse
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

SHAPES = {
    "bert-base": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072),
    "minilm-l6": dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
}
WORDS = 30000


def word(number):
    """A word of letters that is one token."""
    letters = ""
    for _ in range(4):
        number, rest = divmod(number, 26)
        letters += chr(ord("a") + rest)
    return letters


def texts(count):
    """Texts of 16 to 256 tokens, with the two tokens around a text."""
    rng = random.Random(7)
    lengths = [16 + round(240 * at / max(count - 1, 1)) for at in range(count)]
    rng.shuffle(lengths)
    return [" ".join(word(rng.randrange(WORDS)) for _ in range(length - 2)) for length in lengths]


def make(folder, shape):
    """A checkpoint of random weights with its tokenizer and a pooling of means."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordPiece
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = {token: number for number, token in enumerate(specials + [word(at) for at in range(WORDS)])}
    tokenizer = Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])])
    torch.manual_seed(1)
    inner = folder / "inner"
    BertModel(BertConfig(vocab_size=len(vocab), **SHAPES[shape])).save_pretrained(inner)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=512).save_pretrained(inner)
    transformer = models.Transformer(str(inner), max_seq_length=512)
    pooling = models.Pooling(transformer.get_word_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling, models.Normalize()], device="cpu")
    model.save(str(folder / shape))
    return folder / shape


def peer(model, inputs, threads):
    """Seconds and vectors of sentence-transformers, in this process."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    loaded = SentenceTransformer(str(model), device="cpu")
    loaded.encode(inputs, batch_size=32)
    start = time.perf_counter()
    vectors = loaded.encode(inputs, batch_size=32)
    return time.perf_counter() - start, vectors.tolist()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def own(gannet, model, inputs, threads, flags):
    """Seconds and vectors of Gannet, in a server that is started for it."""
    port = free_port()
    command = [gannet, "serve", "-m", str(model), "--port", str(port), "--threads", str(threads), *flags]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    body = json.dumps({"input": inputs}).encode()

    def ask():
        request = urllib.request.Request(f"{base}/v1/embeddings", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return [item["embedding"] for item in json.load(answer)["data"]]

    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{base}/health").close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the server did not start: {' '.join(command)}")
                time.sleep(0.05)
        ask()
        start = time.perf_counter()
        vectors = ask()
        return time.perf_counter() - start, vectors
    finally:
        server.terminate()
        server.wait()


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", default="../../target/release/gannet")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--flags", default="", help="further flags of gannet serve")
    parser.add_argument("--peer", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    inputs = texts(args.texts)
    if args.peer:
        print(json.dumps(peer(args.peer, inputs, args.threads)))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'shape':<12}{'gannet/s':>10}{'peer/s':>10}{'ratio':>8}{'cosine':>12}")
        for shape in args.shapes.split(","):
            model = make(Path(folder), shape)
            rounds = []
            for turn in range(args.runs):
                again = [sys.executable, __file__, "--peer", str(model), "--threads", str(args.threads),
                         "--texts", str(args.texts)]
                sides = {"peer": lambda: json.loads(subprocess.check_output(again).splitlines()[-1]),
                         "own": lambda: own(args.gannet, model, inputs, args.threads, args.flags.split())}
                order = list(sides) if turn % 2 else list(sides)[::-1]
                rounds.append({side: sides[side]() for side in order})
            rate = {side: statistics.median(args.texts / one[side][0] for one in rounds) for side in ("own", "peer")}
            ratio = statistics.median(one["peer"][0] / one["own"][0] for one in rounds)
            least = min(cosine(a, b) for a, b in zip(rounds[0]["own"][1], rounds[0]["peer"][1]))
            print(f"{shape:<12}{rate['own']:>10.1f}{rate['peer']:>10.1f}{ratio:>8.2f}{least:>12.6f}", flush=True)


if __name__ == "__main__":
    main()
