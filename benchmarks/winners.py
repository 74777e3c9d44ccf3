"""Which sentences Lazy MIL trains on: does the choice fall on the same ones in every round?

    FEDREL_DATA=FOLDER python benchmarks/winners.py results/lazy_mil-table2/winners.json

For some and for all sites active, and for winners chosen by p(r|s) and drawn at random: of the triples with several
sentences, how often the sentence that won the last time wins again (mean over the last ten rounds), and which share
of all training sentences has won at least once by then.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedrel.cli.progress import watching
from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.methods import lazy_mil
from fedrel.methods.claims import Claims, Winners
from fedrel.runs.engines import precision_of
from fedrel.runs.prepare import prepare
from fedrel.runs.run_notes import environment
from fedrel.runs.train import run

PRESET = "lazy_mil/nyt10-part"
LAST = 10


class Choice:
    """The winners of a run, round by round, in place of `lazy_mil.winners`."""

    def __init__(self, several: set[int]) -> None:
        self._several = several  # triples with more than one sentence
        self._winner: dict[int, tuple[int, int]] = {}
        self.won: set[tuple[int, int]] = set()
        self.same: list[float] = []

    def __call__(self, claimed: Mapping[int, Claims], **how: Any) -> dict[int, Winners]:
        """The winners, after a look at them."""
        found = WINNERS(claimed, **how)
        new = {}
        for site, own in found.items():
            triple = dict(zip(claimed[site].index.tolist(), claimed[site].triple.tolist(), strict=True))
            new |= {triple[index]: (site, index) for index in own.index.tolist()}
        again = [self._winner[one] == new[one] for one in new if one in self._several and one in self._winner]
        self.same += [fmean(again)] if again else []
        self._winner |= new
        self.won |= set(new.values())
        return found


WINNERS = lazy_mil.winners


def measure(config: Config) -> dict[str, float]:
    """A run's numbers."""
    data = prepare(config).dataset
    often = np.bincount(data.corpus.triple[data.train])
    choice = Choice(set(np.flatnonzero(often > 1).tolist()))
    lazy_mil.winners = choice
    with TemporaryDirectory() as out, watching(quiet=False, as_json=False) as watch:
        run(config, Path(out), watcher=watch(f"C={config.training.fraction}, {config.methods}", config))
    return {
        "same_again": round(fmean(choice.same[-LAST:]), 4),
        "won_so_far": round(len(choice.won) / len(data.train), 4),
        "one_a_triple": round(float(np.count_nonzero(often) / len(data.train)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"rounds": arguments.rounds, "last": LAST, "runs": {}}
    for fraction in (0.1, 1.0):
        for claims in ("probability", "random"):
            config = load_config(
                PRESET,
                {
                    "training.fraction": fraction,
                    "training.rounds": arguments.rounds,
                    "methods.lazy-mil.claims": claims,
                    "evaluation.every": arguments.rounds,
                    "engine.kind": "local",
                },
            )
            found["runs"][f"C={fraction}, {claims}"] = measure(config)
            print(found["runs"])
    data = prepare(config).dataset
    found["environment"] = environment(data.corpus.fingerprint, precision_of(config)).model_dump(mode="json")
    arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
