"""A chart of speed by context length, from the figures that `compare.py --json` printed.

    python chart.py recorded/qwen3-0.6b-q4_k_m.json --output speed.svg

The left panel shows the prefill rate by prompt length, the right one the decode rate by tokens in the cache, both for
one sequence, in tokens per second. Each line is one side: Gannet, or the best variant of a peer. Needs nothing but
Python's standard library.
"""

import argparse
import json
import math
import sys
from html import escape
from pathlib import Path

PANELS = {"prefill": "prefill: tokens/s by prompt length", "decode": "decode: tokens/s by tokens in the cache"}
COLOURS = ["#0f766e", "#b45309", "#6d28d9", "#be123c"]
WIDTH, HEIGHT, LEFT, TOP, STRIDE = 320, 200, 52, 48, 400
"""The size of a panel's plot, the place of the first one, and the distance to the next, in pixels."""
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #57606a }
.title { font-weight: 600; fill: #24292f }
.grid { stroke: #d0d7de }
polyline { fill: none; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) { text { fill: #9198a1 } .title { fill: #f0f6fc } .grid { stroke: #3d444d } }
"""


def figures(file):
    """The measurements of a file: all of it, or its last line behind a table."""
    text = Path(file).read_text()
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(text.strip().splitlines()[-1])


def lines_of(report, model, phase):
    """For each side its (tokens, tokens per second) in order of tokens, one sequence at a time."""
    sides = {}
    for line in report["lines"]:
        if (line["model"], line["phase"], line["batch"]) != (model, phase, 1):
            continue
        for side, found in line.items():
            if isinstance(found, dict):
                sides.setdefault(side, []).append((line["tokens"], found["median"]))
    return {side: sorted(points) for side, points in sides.items()}


def ceiling(most):
    """The end of an axis and the distance of its lines: at least `most`, in four to eight steps."""
    power = 10 ** math.floor(math.log10(most / 4))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if most / (power * factor) <= 8)
    return step * math.ceil(most / step), step


def short(tokens):
    return f"{tokens // 1024}k" if tokens and tokens % 1024 == 0 else str(tokens)


def text(x, y, words, anchor="start", kind=""):
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(words)}</text>'


def panel(left, title, sides, colours):
    """The elements of one panel. Lengths stand at equal distances, in their order."""
    lengths = sorted({tokens for points in sides.values() for tokens, _ in points})
    most, step = ceiling(max(rate for points in sides.values() for _, rate in points))
    x = lambda tokens: left + WIDTH * (lengths.index(tokens) + 0.5) / len(lengths)
    y = lambda rate: TOP + HEIGHT * (1 - rate / most)
    parts = [text(left, TOP - 16, title, kind="title")]
    for at in range(round(most / step) + 1):
        height = y(at * step)
        parts.append(f'<line class="grid" x1="{left}" x2="{left + WIDTH}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(text(left - 8, height + 4, f"{at * step:g}", "end"))
    parts += [text(x(tokens), TOP + HEIGHT + 18, short(tokens), "middle") for tokens in lengths]
    for side, points in sides.items():
        colour, label = colours[side], -8 if side == next(iter(sides)) else 18
        places = " ".join(f"{x(tokens):.1f},{y(rate):.1f}" for tokens, rate in points)
        parts.append(f'<polyline points="{places}" stroke="{colour}"/>')
        for tokens, rate in points:
            parts.append(f'<circle cx="{x(tokens):.1f}" cy="{y(rate):.1f}" r="3.5" fill="{colour}"/>')
            parts.append(text(x(tokens), y(rate) + label, f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}", "middle"))
    return parts


def key(colours, y):
    """The names of the sides beside their colours."""
    parts = []
    for at, (side, colour) in enumerate(colours.items()):
        left = LEFT + 120 * at
        parts.append(f'<rect x="{left}" y="{y - 9}" width="18" height="4" fill="{colour}"/>')
        parts.append(text(left + 24, y - 3, side))
    return parts


def chart(report, model):
    """The chart of one model's measurements as SVG."""
    found = {phase: lines_of(report, model, phase) for phase in PANELS}
    found = {phase: sides for phase, sides in found.items() if sides}
    if not found:
        sys.exit(f"{model}: no rates of single sequences")
    colours = dict(zip(dict.fromkeys(side for sides in found.values() for side in sides), COLOURS))
    machine = report["machine"]
    facts = [f"{model}, {machine['threads']} threads, commit {machine['commit']}", machine["cpu"]]
    parts = []
    for at, (phase, sides) in enumerate(found.items()):
        parts += panel(LEFT + STRIDE * at, PANELS[phase], sides, colours)
    bottom = TOP + HEIGHT + 50
    parts += key(colours, bottom)
    parts += [text(LEFT, bottom + 22 + 18 * at, line) for at, line in enumerate(facts)]
    width, height = LEFT + STRIDE * (len(found) - 1) + WIDTH + 20, bottom + 52
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    said = f"<desc>{escape('; '.join(facts))}</desc>"
    return "\n".join([head, said, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", help="what `compare.py --json` printed")
    parser.add_argument("--model", help="one of its models; the first if left out")
    parser.add_argument("--output", default="-", help="the SVG file; - for standard output")
    args = parser.parse_args()
    report = figures(args.figures)
    svg = chart(report, args.model or report["lines"][0]["model"])
    if args.output == "-":
        print(svg, end="")
    else:
        Path(args.output).write_text(svg)


if __name__ == "__main__":
    main()
