"""What `run.py` gives the peers, and what they give back: files that need no fedrel to be read.

A part is one round: `check`, small and without dropout, whose weights must come out the same, and `timed`. A part's
folder has the initial weights under our names, each site's sentences, padded, in the order of its bags, and the
order of the sentences in each of its epochs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from published import Published, train

CHECK, TIMED = "check", "timed"


@dataclass(frozen=True)
class Settings:
    """How a site trains, and how many sites there are."""

    sites: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    dropout: float

    @classmethod
    def read(cls, part: Path) -> Settings:
        """What `write` wrote."""
        return cls(**json.loads((part / "settings.json").read_text()))

    def write(self, part: Path) -> None:
        """Leave them for the peers."""
        (part / "settings.json").write_text(json.dumps(vars(self)))

    def optimiser(self, net: Published) -> torch.optim.Optimizer:
        """What a site trains with, new in every round."""
        return torch.optim.SGD(
            net.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay, fused=True
        )


@dataclass(frozen=True)
class SiteText:
    """A site's sentences: the columns that `Published.forward` takes, and the labels."""

    columns: tuple[Tensor, ...]  # words, distances to head and tail, pieces: [n, longest]; labels [n]
    orders: Tensor  # [epochs, n]

    @classmethod
    def read(cls, part: Path, site: int) -> SiteText:
        """What `write` wrote."""
        *columns, orders = (torch.from_numpy(np.load(file)) for file in _files(part, site))
        return cls(tuple(columns), orders)

    def write(self, part: Path, site: int) -> None:
        """Leave it for the peers."""
        for file, tensor in zip(_files(part, site), (*self.columns, self.orders), strict=True):
            np.save(file, tensor.numpy())

    def __len__(self) -> int:
        return len(self.columns[0])

    def batches(self, epoch: int, size: int) -> Iterator[tuple[Tensor, ...]]:
        """One epoch's batches."""
        for which in self.orders[epoch].split(size):
            yield tuple(column[which] for column in self.columns)

    def fit(self, net: Published, settings: Settings) -> float:
        """All epochs in a plain loop; the mean loss of the steps."""
        optimiser, losses = settings.optimiser(net), []
        for epoch in range(len(self.orders)):
            for *inputs, labels in self.batches(epoch, settings.batch_size):
                losses.append(train(net, optimiser, tuple(inputs), labels).item())  # type: ignore[arg-type]
        return float(np.mean(losses))


def initial(part: Path) -> dict[str, Tensor]:
    """The weights that a round starts from, under our names."""
    with np.load(part / "initial.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def write_result(
    part: Path, peer: str, weights: Mapping[str, Tensor], loss: float, seconds: float, **more: Any
) -> None:
    """What a peer comes to: the mean weights under our names, the mean loss, and the time."""
    np.savez(part / f"{peer}.npz", **{name: tensor.detach().numpy() for name, tensor in weights.items()})
    (part / f"{peer}.json").write_text(json.dumps({"loss": loss, "seconds": seconds, **more}))


def _files(part: Path, site: int) -> list[Path]:
    names = ("words", "head", "tail", "piece", "labels", "orders")
    return [part / f"{site}-{name}.npy" for name in names]
