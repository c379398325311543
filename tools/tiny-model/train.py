"""Train the tiny model on the corpus.

    python train.py --out build --steps 6000

The learning rate warms up, stays level, then falls over the last part of the run.
With `--minutes` the run comes down and ends by then even if steps remain. A run
continues from `build/checkpoint.pt` where there is one. Everything drawn is a
function of the seed and the step. A moving average of the weights is what is
evaluated and exported.
"""

import argparse
import math
import signal
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from corpus import batch, held_out_samples
from model import Shape, Tiny
from muon import Muon
from packing import Encoder, micro_batches
from skills import MIXTURE, SKILLS

LEVEL_UNTIL = 0.55


def weighted_loss(model, table, at, targets, weights, past=None):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = model.hidden(table, past).flatten(0, 1)[at]
        logits = model.logits(states)
    return (F.cross_entropy(logits.float(), targets, reduction="none") * weights).sum()


def loss_of_part(model, plain, part):
    """The loss of a micro-batch; `plain` is the compiled form for lone rows."""
    inputs = (part.table, part.at, part.targets, part.weights)
    if part.start is None:
        return plain(model, *inputs)
    past = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.hidden(part.start, keep=past)
    return weighted_loss(model, *inputs, past)


def progress(step, seconds, args):
    """How much of the run is over, by steps or by the clock."""
    by_clock = seconds / (60 * args.minutes) if args.minutes else 0.0
    return max(step / args.steps, by_clock)


def learning_rate(step, done):
    if step < 100:
        return (step + 1) / 100
    return 0.01 + 0.99 * min(1.0, max(0.0, (1 - done) / (1 - LEVEL_UNTIL)))


def make_optimizers(model, args):
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim < 2 or "embed" in n]
    return [
        Muon(matrices, lr=args.matrix_rate, weight_decay=0.02),
        torch.optim.AdamW(others, lr=args.table_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


@torch.no_grad()
def accuracy(model, exams):
    """Share of held-out samples whose every token is the model's first choice.

    Greedy decoding gives exactly the wanted text in these cases. Stories may go on
    in several ways, so their share says little here.
    """
    marks = {}
    for name, rows in exams.items():
        right = total = 0
        for part in micro_batches(rows):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model.logits(model.hidden(part.table).flatten(0, 1)[part.at])
            wrong = (logits.argmax(-1) != part.targets).float()
            owner = part.at // part.table.shape[1]
            missed = torch.zeros(len(part.table)).index_add_(0, owner, wrong)
            right += int((missed == 0).sum())
            total += len(part.table)
        marks[name] = right / total
    return marks


def exams_of(encode, count):
    return {
        f"{skill}/{'think' if thinking else 'direct'}": encode(
            [[sample] for sample in held_out_samples(skill, count, "exam", thinking)]
        )
        for skill in SKILLS
        for thinking in ((True, False) if skill != "plain text" else (False,))
    }


def one_step(model, plain, optimizers, encode, step, rate, args):
    rows = encode(batch(args.seed, step, args.batch, MIXTURE))
    parts = list(micro_batches(rows))
    whole = sum(float(part.weights.sum()) for part in parts)
    total = 0.0
    for part in parts:
        loss = loss_of_part(model, plain, part) / whole
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("peak", group["lr"])
            group["lr"] = group["peak"] * rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return total, sum(int(part.table.numel()) for part in parts)


def save(path, step, seconds, model, average, optimizers):
    state = dict(
        step=step,
        seconds=seconds,
        shape=model.shape.as_dict(),
        model=model.state_dict(),
        average=average.state_dict(),
        optimizers=[o.state_dict() for o in optimizers],
    )
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def report(step, marks):
    lines = [f"{name} {share:.2f}" for name, share in marks.items()]
    print(f"step {step} exams: " + "  ".join(lines), flush=True)


def train(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    encode = Encoder(Tokenizer.from_file(str(args.out / "tokenizer.json")))
    exams = exams_of(encode, args.exam)
    model, average = Tiny(Shape()), Tiny(Shape())
    optimizers = make_optimizers(model, args)
    path, step, before = args.out / "checkpoint.pt", 0, 0.0
    average.load_state_dict(model.state_dict())
    if path.exists():
        state = torch.load(path, weights_only=True)
        step, before = state["step"], state["seconds"]
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        for optimizer, kept in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(kept)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, from step {step}", flush=True)
    plain = torch.compile(weighted_loss, dynamic=True) if args.compile else weighted_loss
    began, tokens, losses = time.time(), 0, []
    done, wanted = progress(step, before, args), []
    # Ctrl-C or a termination ends the run after the step at hand, with a checkpoint.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: wanted.append(True))
    while done < 1 and not wanted:
        rate = learning_rate(step, done)
        loss, count = one_step(model, plain, optimizers, encode, step, rate, args)
        step, tokens = step + 1, tokens + count
        seconds = before + time.time() - began
        done = progress(step, seconds, args)
        losses.append(loss)
        keep = min(0.997, 1 - 1 / (1 + step / 8))
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters()):
                mean.lerp_(now, 1 - keep)
        if step % 50 == 0:
            mean_loss, speed = sum(losses) / len(losses), tokens / (time.time() - began)
            print(
                f"step {step} done {done:.3f} loss {mean_loss:.4f} tokens/s {speed:.0f}", flush=True
            )
            losses = []
            if not math.isfinite(loss):
                raise SystemExit("the loss is not finite")
        if step % args.every == 0 or done >= 1 or wanted:
            save(path, step, seconds, model, average, optimizers)
            report(step, accuracy(average, exams))


def main():
    parser = argparse.ArgumentParser(description="Train the tiny model.")
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--minutes", type=float, default=0, help="end by then in any case")
    parser.add_argument("--batch", type=int, default=64, help="samples per step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=400, help="steps between exams")
    parser.add_argument("--exam", type=int, default=24, help="samples per skill and mode")
    parser.add_argument("--matrix-rate", type=float, default=0.015)
    parser.add_argument("--table-rate", type=float, default=0.004)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
