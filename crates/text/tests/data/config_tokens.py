"""Writes config_tokens.json: added tokens that tokenizer_config.json and older files state.

    python config_tokens.py > config_tokens.json      (transformers 5.24, tokenizers 0.23)

Each variant changes the files of llama3 beside this script; the ids are those of AutoTokenizer, and
the rendering is that of a chat template that names the roles.
"""

import json
import pathlib
import tempfile

import transformers
from transformers import AutoTokenizer

transformers.logging.set_verbosity_error()
BASE = pathlib.Path(__file__).parent / "llama3"
ROLES = ["bos", "eos", "pad", "unk", "cls", "sep", "mask", "image", "tool", "x"]
TEMPLATE = "|".join("{{ %s_token }}" % role for role in ROLES)
TEXTS = ["foo<tool> bar <tool>x", "a<|eot_id|> b", "day monday day_ A\u0301day day\u203fx", "<img><x> the the ", "Tool"]


def token(content, **flags):
    plain = dict(lstrip=False, rstrip=False, normalized=False, single_word=False, special=False)
    return {"content": content, **plain, **flags}


def typed(content, **flags):
    return {"__type": "AddedToken", **token(content, **flags)}


size = len(json.load(open(BASE / "tokenizer.json"))["model"]["vocab"])
count = max(t["id"] for t in json.load(open(BASE / "tokenizer.json"))["added_tokens"]) + 1
# Fields of tokenizer.json's added tokens, of tokenizer_config.json (None: taken out), other files.
VARIANTS = {
    "plain": ([], {}, {}),
    "decoder": ([], {"added_tokens_decoder": {str(count): token("<tool>")}}, {}),
    "decoder_far_id": ([], {"added_tokens_decoder": {str(count + 90): token("<tool>"), str(count + 7): token("<x>")}}, {}),
    "decoder_flags_win": ([token("<tool>")], {"added_tokens_decoder": {str(count): token("<tool>", lstrip=True, rstrip=True)}}, {}),
    "decoder_special": ([token("<tool>")], {"added_tokens_decoder": {str(count): token("<tool>", special=True, lstrip=True)}}, {}),
    "decoder_not_special": ([], {"added_tokens_decoder": {"699": token("<|eot_id|>", rstrip=True)}}, {}),
    "decoder_word": ([], {"added_tokens_decoder": {str(count): token("day", single_word=True)}}, {}),
    "decoder_of_the_model": ([], {"added_tokens_decoder": {"5": token("the")}}, {}),
    "decoder_without_flags": ([], {"added_tokens_decoder": {str(count): {"content": "<tool>"}}}, {}),
    "additional": ([], {"additional_special_tokens": ["<tool>", "<x>"]}, {}),
    "additional_objects": ([], {"additional_special_tokens": [typed("<tool>", rstrip=True)]}, {}),
    "extra_list": ([], {"extra_special_tokens": ["<tool>"]}, {}),
    "extra_dict": ([], {"extra_special_tokens": {"tool_token": "<tool>", "other_token": "<x>"}}, {}),
    "extra_known": ([token("<tool>")], {"extra_special_tokens": ["<tool>"]}, {}),
    "extra_before_additional": ([], {"extra_special_tokens": ["<x>"], "additional_special_tokens": ["<tool>"]}, {}),
    "pad": ([], {"pad_token": "<tool>"}, {}),
    "pad_of_the_model": ([], {"pad_token": "the"}, {}),
    "own_role": ([], {"image_token": "<img>"}, {}),
    "role_object": ([], {"mask_token": typed("<tool>", lstrip=True)}, {}),
    "of_the_model": ([], {"model_specific_special_tokens": {"image_token": "<img>", "x_token": typed("<tool>", lstrip=True)}}, {}),
    "of_the_model_and_extra": ([], {"extra_special_tokens": ["<x>"], "model_specific_special_tokens": {"image_token": "<img>"}}, {}),
    "of_the_model_beside_named": ([], {"extra_special_tokens": {"x_token": "<x>"}, "model_specific_special_tokens": {"image_token": "<img>"}}, {}),
    "roles_of_the_model": ([], {"cls_token": "<|eot_id|>", "sep_token": "the", "mask_token": "", "x_token": 5}, {}),
    "all_ways": ([token("<x>")], {"added_tokens_decoder": {str(count + 1): token("<img>")}, "pad_token": "<tool>", "extra_special_tokens": ["day"]}, {}),
    "map": ([], {"added_tokens_decoder": None}, {"special_tokens_map.json": {"pad_token": "<tool>", "additional_special_tokens": ["<x>"]}}),
    "map_object": ([], {"added_tokens_decoder": None}, {"special_tokens_map.json": {"pad_token": token("<tool>", lstrip=True)}}),
    "map_beside_decoder": ([], {"added_tokens_decoder": {str(count): token("<x>")}}, {"special_tokens_map.json": {"pad_token": "<tool>"}}),
    "added_tokens": ([], {"added_tokens_decoder": None}, {"added_tokens.json": {"<tool>": count, "<x>": count + 1}}),
    "added_tokens_and_map": ([], {"added_tokens_decoder": None}, {"added_tokens.json": {"<tool>": count}, "special_tokens_map.json": {"pad_token": "<tool>"}}),
}


def case(name, added, config, files):
    tokenizer = json.load(open(BASE / "tokenizer.json"))
    tokenizer["added_tokens"] += [{"id": count + at, **one} for at, one in enumerate(added)]
    base = {**json.load(open(BASE / "tokenizer_config.json")), **config}
    base = {key: value for key, value in base.items() if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for file, content in {"tokenizer.json": tokenizer, "tokenizer_config.json": base,
                              "config.json": {"model_type": "llama"}, **files}.items():
            (folder / file).write_text(json.dumps(content))
        loaded = AutoTokenizer.from_pretrained(folder)
        ids = [loaded(text)["input_ids"] for text in TEXTS]
        rendered = loaded.apply_chat_template([{"role": "user", "content": ""}], chat_template=TEMPLATE, tokenize=False)
    return {"name": name, "added": tokenizer["added_tokens"], "config": base, "files": files, "ids": ids, "rendered": rendered}


cases = ",\n".join(json.dumps(case(name, *variant)) for name, variant in VARIANTS.items())
print(f'{{"texts": {json.dumps(TEXTS)},\n"template": {json.dumps(TEMPLATE)},\n"cases": [\n{cases}\n]}}')
