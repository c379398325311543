"""Train the byte-level BPE vocabulary on the corpus and write `tokenizer.json`.

python tokenizer.py --out build
"""

import argparse
import json
from itertools import chain
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from corpus import batch

SIZE = 2048
# Split as Qwen2 does: contractions, words with one leading mark, single digits,
# runs of marks, line ends, spaces.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
]


def training_text(steps=600, per_step=48):
    """Samples of all skills without the added tokens, which BPE must not see."""
    from skills import MIXTURE

    flat = {skill: weight + 4 for skill, weight in MIXTURE.items() if skill != "sums"}
    for step in range(steps):
        for sample in chain.from_iterable(batch("tokenizer", step, per_step, flat)):
            text = sample.prompt.split("<tools>\n")[-1] + sample.completion
            for token in SPECIAL + MARKS:
                text = text.replace(token, "\n")
            yield text


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(SPECIAL) - len(MARKS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    added = [AddedToken(t, special=True, normalized=False) for t in SPECIAL]
    added += [AddedToken(t, special=False, normalized=False) for t in MARKS]
    tokenizer.add_tokens(added)
    assert tokenizer.get_vocab_size() == SIZE, tokenizer.get_vocab_size()
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description="Train the vocabulary.")
    parser.add_argument("--out", type=Path, default=Path("build"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    tokenizer.save(str(args.out / "tokenizer.json"))
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(token): {
                "content": about.content,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": about.special,
            }
            for token, about in sorted(tokenizer.get_added_tokens_decoder().items())
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "model_max_length": 2048,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
