"""Samples to tensors: encoding, groups with a common start, batches of like length."""

from dataclasses import dataclass

import torch

from corpus import TEXT_END

MAX_TOKENS = 640
# Small enough that the states of a micro-batch stay in the cache of a core.
MICRO_TOKENS = 1536


@dataclass
class Row:
    """Tokens of one sample; those at the places `judged` are learned."""

    ids: list
    judged: list


@dataclass
class Group:
    """Rows that go on from the same `start`, which may be empty."""

    start: list
    rows: list


@dataclass
class Part:
    """One padded micro-batch. `at` are flat indices of the states that are judged."""

    table: torch.Tensor
    at: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    start: torch.Tensor | None = None


class Encoder:
    """Prompt and completion are encoded apart, as they are in use."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def _ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def _row(self, sample):
        prompt, completion = self._ids(sample.prompt), self._ids(sample.completion)
        ids = prompt + completion
        judged = list(range(len(prompt), len(ids)))
        return Row(ids, self._results(ids) if sample.sums else judged)

    def _results(self, ids):
        """The places from after each equals sign to the end of the text."""
        places, inside = [], False
        for place, token in enumerate(ids):
            text = self.tokenizer.id_to_token(token)
            if inside:
                places.append(place)
            inside = text.endswith("=") or (inside and text != TEXT_END)
        return places

    def __call__(self, groups):
        rows = ([self._row(sample) for sample in group] for group in groups)
        return [group_of(some) for some in rows if max(len(r.ids) for r in some) <= MAX_TOKENS]


def group_of(rows):
    if len(rows) == 1:
        return Group([], rows)
    # The last prompt token stays in its row, since its state is judged.
    cut = min(common_start([r.ids for r in rows]), min(r.judged[0] for r in rows) - 1)
    tails = [Row(r.ids[cut:], [place - cut for place in r.judged]) for r in rows]
    return Group(rows[0].ids[:cut], tails)


def common_start(lists):
    length = 0
    for tokens in zip(*lists):
        if len(set(tokens)) > 1:
            break
        length += 1
    return length


def micro_batches(groups):
    """Lone rows of like length together; every group with a start by itself."""
    lone = sorted((g.rows[0] for g in groups if not g.start), key=lambda row: len(row.ids))
    begin = 0
    while begin < len(lone):
        end = begin + 1
        while end < len(lone) and len(lone[end].ids) * (end + 1 - begin) <= MICRO_TOKENS:
            end += 1
        yield pack(lone[begin:end])
        begin = end
    for group in groups:
        if group.start:
            part = pack(group.rows)
            part.start = torch.tensor([group.start])
            yield part


def pack(rows):
    width = -(-max(len(row.ids) for row in rows) // 8) * 8
    table = torch.zeros(len(rows), width, dtype=torch.long)
    at, targets, weights = [], [], []
    for i, row in enumerate(rows):
        table[i, : len(row.ids)] = torch.tensor(row.ids)
        at += [i * width + place - 1 for place in row.judged]
        targets += [row.ids[place] for place in row.judged]
        # Long answers count for more than short ones, but less than their length.
        weights += [len(row.judged) ** -0.5] * len(row.judged)
    return Part(table, torch.tensor(at), torch.tensor(targets), torch.tensor(weights))
