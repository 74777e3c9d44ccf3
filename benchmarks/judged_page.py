"""The page of `judged.py`, from `judged.json` and the paragraph of reading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import Any

# Whose models `detect` takes: table and column.
DETECTORS = {"detect": ("table2", "C=0.1"), "detect-minilm": ("table5", "NYT10")}


def page(found: dict[str, Any], reading: str = "") -> str:
    """README.md, from judged.json alone but for the paragraph of reading."""
    lines = ["# Which sentences state their relation? Judged text", "", reading.strip()]
    if "noise" in found:
        lines += ["", "## How noisy it is", "", *_noise(found["noise"])]
    for part, (table, _) in DETECTORS.items():
        if part in found:
            models = f"models of Table {table.removeprefix('table')}"
            lines += [
                "",
                f"## As a detector: {models} on judged sentences that they were not trained on",
                "",
            ]
            lines += list(_areas(found[part]))
    if "mix" in found:
        lines += ["", "## With judged sentences among the training text", "", *_mixed(found["mix"])]
    if "random" in found:
        lines += ["", "## How much of it is the choice?", "", *_random(found["random"])]
    lines += ["", "## How", "", "```sh", *found["commands"], "```", ""]
    commits = ", ".join(f"{part} at {commit}" for part, commit in found["commits"].items())
    lines += [f"Commits: {commits}. All numbers are in `judged.json`."]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _noise(sets: dict[str, Any]) -> Iterator[str]:
    yield (
        "The share of sentences about a related pair that do not state the relation, by how many sentences of the "
        "set are about the triple; and the power *b* of the odds of noise, proportional to that number to the *b*, "
        "by logistic regression, with its standard error (sentences of one triple taken as independent)."
    )
    sizes = list(dict.fromkeys(size for one in sets.values() for size in one["bags"]))
    yield ""
    yield f"| set | sentences | triples | noise | {' | '.join(f'of {size}' for size in sizes)} | *b* |"
    yield f"| --- | ---: | ---: | ---: | {' | '.join('---:' for _ in sizes)} | ---: |"
    for name, one in sets.items():
        by_size = [f"{one['bags'][size]['noise']:.2f}" if size in one["bags"] else "—" for size in sizes]
        power = "—" if one["power"] is None else f"{one['power']:.2f} ± {one['standard_error']:.2f}"
        counts = f"{one['sentences']} | {one['triples']} | {one['noise']:.2f}"
        yield f"| {name} | {counts} | {' | '.join(by_size)} | {power} |"


def _areas(sets: dict[str, Any]) -> Iterator[str]:
    """A table of areas under the ROC curve."""
    yield (
        "The area under the ROC curve of p(r|s), sentences that state their relation against those that do not, "
        "with 95 % intervals (bootstrap over triples and seeds); in parentheses the paired difference from `one`."
    )
    yield ""
    titles = []
    for name, one in sets.items():
        left_out = f", {one['among_training']} trained on left out" if "among_training" in one else ""
        titles.append(f"{name}: {one['stating']} of {one['sentences']} state it{left_out}")
    yield f"| method | seeds | {' | '.join(titles)} |"
    yield f"| --- | ---: | {' | '.join('---:' for _ in titles)} |"
    methods = next(iter(sets.values()))["methods"]
    for method in methods:
        cells = []
        for one in sets.values():
            area, beside = one["methods"][method]["auc"], one["methods"][method]["beside_one"]
            cell = f"{area['mean']:.3f} [{area['low']:.3f}, {area['high']:.3f}]"
            if method != "one":
                cell += f" ({beside['mean']:+.3f} [{beside['low']:+.3f}, {beside['high']:+.3f}])"
            cells.append(cell)
        yield f"| {method} | {methods[method]['seeds']} | {' | '.join(cells)} |"


def _mixed(found: dict[str, Any]) -> Iterator[str]:
    sizes = "; ".join(
        f"{name}: {one['sentences']}, of which {one['stating']} state it"
        for name, one in found["judged_in_training"].items()
    )
    yield (
        f"Judged sentences in training: {sizes}. At most {found['rounds']} rounds, until dev gets no better for "
        "100. Selection precision is the share of the training weight on judged sentences that is on stating ones, "
        f"the mean over rounds; of all judged sentences {found['share_stating']:.3f} state their relation."
    )
    yield ""
    yield "| method | seeds | selection precision | AUC on the test part |"
    yield "| --- | ---: | ---: | ---: |"
    for method, values in found["selection_precision"].items():
        yield f"| {method} | {len(values)} | {spread(values)} | {spread(found['test_auc'][method])} |"
    yield ""
    yield "### As a detector among the sentences trained on"
    yield ""
    yield from _areas(found["trained_on"])
    yield ""
    yield "### As a detector on the half of the snippets that was held out"
    yield ""
    yield from _areas(found["held_out"])


def _random(texts: dict[str, Any]) -> Iterator[str]:
    methods = list(next(iter(texts.values()))["random"])
    yield (
        "Selection precision, and in parentheses what the same sites would have in the same rounds if every "
        "sentence of a bag were as likely to be chosen. What Lazy MIL has by chance beyond ONE comes from training "
        "on a triple with many sentences, which is likely a noisy one, no more than on others. What it has beyond "
        "chance is the model's choice."
    )
    yield ""
    yield f"| text | {' | '.join(methods)} |"
    yield f"| --- | {' | '.join('---:' for _ in methods)} |"
    for name, one in texts.items():
        cells = [f"{one['chosen'][method]:.3f} ({one['random'][method]:.3f})" for method in methods]
        yield f"| {name} | {' | '.join(cells)} |"


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation."""
    deviation = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{deviation}"
