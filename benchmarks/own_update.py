"""Can a site tell from the weights alone whether its own update is in them? False refusals against power.

    python benchmarks/own_update.py [--rounds 8] [--methods fedavg,lazy-mil,one,fedprox]

Every round of an honest simulation, on the world of `world/attacks` with 20 sites: the global weights move by g, a
mean of the sites' moves. A site that moved by u looks how far g went its own way, <g, u> / |u|^2. That is done for
the honest mean, and for the mean without that site, as a coordinator that leaves it out would send it. The
strictest threshold that refuses no honest round of any method and partition is the lowest value of them all; the
power is how many of the means without the site lie below. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

import fedrel
from fedrel.config.schema import Config
from fedrel.federation.coordinator import Answer, Engine
from fedrel.federation.engines.attacks import EngineAround, update_in
from fedrel.federation.engines.in_process import LocalEngine
from fedrel.federation.messages import Arrays
from fedrel.runs.engines import new_runner
from fedrel.runs.prepare import prepare
from fedrel.runs.train import Session
from fedrel.tensors.weights import Weights, dense

Floats = npt.NDArray[np.float64]
PARTITIONS = {"alike": {}, "different": {"partition.kind": "dirichlet", "partition.alpha": 0.1}}
_MODEL = "Model.weights/"


class Listening(EngineAround):
    """Keeps the moves of a round's updates, [sites, weights], and their numbers of examples."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._base: Weights = {}
        self.moves: list[Floats] = []
        self.examples: list[int] = []

    def ask(
        self, phase: str, round_: int, shared: Arrays, own: Mapping[int, Arrays]
    ) -> Iterator[tuple[int, Answer]]:
        """Ask, and listen."""
        sent = {name.removeprefix(_MODEL): one for name, one in shared.items() if name.startswith(_MODEL)}
        self._base = sent or self._base
        for site, answer in self._inner.ask(phase, round_, shared, own):
            update = None if answer.arrays is None else update_in(answer.arrays, self._base)
            if update is not None and answer.arrays is not None:
                there = dense(self._base, update)
                self.moves.append(np.concatenate([(there[n] - self._base[n]).ravel() for n in there]))
                self.examples.append(int(answer.arrays["examples"]))
            yield site, answer


def compared(config: Config, rounds: int) -> tuple[Floats, Floats]:
    """How far the mean went each site's way, in shares of its own update: with it, and without it."""
    ready = prepare(config)
    engine = Listening(LocalEngine(new_runner(config, ready.site_data, Path("none"))))
    session = Session(config, ready, engine, None)
    honest, without = [], []
    for _ in range(rounds):
        engine.moves, engine.examples = [], []
        session.next_round()
        products = np.array(engine.moves, np.float64) @ np.array(engine.moves, np.float64).T
        weights, own = np.array(engine.examples, float), np.diag(products)
        honest += (products @ weights / weights.sum() / own).tolist()
        without += ((products @ weights - weights * own) / (weights.sum() - weights) / own).tolist()
    return np.array(honest), np.array(without)


def main() -> None:
    """Compare for every method, partition and number of sites in a round."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--methods", default="fedavg,lazy-mil,one,fedprox")
    chosen = parser.parse_args()
    cells = {}
    for sites, (partition, settings), method in product(
        (4, 10), PARTITIONS.items(), chosen.methods.split(",")
    ):
        changes = {"method": method, "partition.sites": 20, "training.fraction": sites / 20, "case_study": 0}
        config = fedrel.load_config("world/attacks", {**changes, **settings})
        cells[f"{sites} sites, {partition}, {method}"] = compared(config, chosen.rounds)
    lowest = min(honest.min() for honest, _ in cells.values())
    found = {}
    for name, (honest, without) in cells.items():
        found[name] = {
            "honest": [round(float(np.quantile(honest, at)), 3) for at in (0, 0.01, 0.5)],
            "without": [round(float(np.quantile(without, at)), 3) for at in (0, 0.01, 0.5)],
            "power at 1 % false": round(float((without < np.quantile(honest, 0.01)).mean()), 3),
            "power where none is false": round(float((without < lowest).mean()), 3),
        }
        print(f"{name:34}", found[name], flush=True)
    print(json.dumps({"lowest honest": round(float(lowest), 3), **found}))


if __name__ == "__main__":
    main()
