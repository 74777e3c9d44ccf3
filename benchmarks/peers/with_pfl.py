"""The rounds of `run.py` by pfl: `torchrun --standalone --nproc-per-node 2 with_pfl.py FOLDER`.

pfl divides a cohort among processes, one thread each, which on two cores is faster than one process with two
threads. The first central iteration, which pfl always evaluates, is the small round; the second is timed, from the
callback after the first to the callback after the second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from exchange import CHECK, TIMED, Settings, SiteText, initial, write_result
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor

from published import Published


class Net(Published):
    """The network with the two functions that pfl asks for."""

    losses: list[float]

    def loss(self, *batch: Tensor) -> Tensor:
        """Of one batch in training."""
        *inputs, labels = batch
        self.train()
        loss = torch.nn.functional.cross_entropy(self(*inputs), labels)
        self.losses.append(loss.item())
        return loss

    @torch.no_grad()
    def metrics(self, *batch: Tensor) -> dict[str, Weighted]:
        """Of one site; only the small round is evaluated."""
        *inputs, labels = batch
        self.eval()
        loss = torch.nn.functional.cross_entropy(self(*inputs), labels, reduction="sum")
        return {"loss": Weighted(loss.item(), len(labels))}


class Shuffled(Dataset):
    """A site's sentences, in another order in every epoch."""

    def __init__(self, text: SiteText, site: str) -> None:
        super().__init__(text.columns, user_id=site)
        self._text, self._epoch = text, 0

    def iter(self, batch_size: int | None) -> Iterable[tuple[Tensor, ...]]:
        """One epoch's batches."""
        if batch_size is None or batch_size == len(self):  # evaluation
            yield self.raw_data
            return
        yield from self._text.batches(self._epoch % len(self._text.orders), batch_size)
        self._epoch += 1


class Rounds(TrainingProcessCallback):
    """Writes down what each round comes to, and starts the second from the initial weights again."""

    def __init__(self, folder: Path, parts: list[str]) -> None:
        self._folder, self._parts, self._since = folder, parts, 0.0

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """The time of the round that ends here includes averaging."""
        seconds = time.perf_counter() - self._since
        net, ops = model.pytorch_model, get_framework_module()
        part = self._folder / self._parts[central_iteration]
        if ops.distributed.global_rank == 0:  # its own sites' losses: all sites are alike
            loss = float(np.mean(net.losses))
            write_result(part, "pfl", net.as_ours(), loss, seconds, processes=ops.distributed.world_size)
        if central_iteration == 0:
            last = self._folder / self._parts[1]
            net.load(initial(last))
            net.losses, net.dropout.p = [], Settings.read(last).dropout
            self._since = time.perf_counter()
        return False, Metrics()


def main(folder: Path) -> None:
    """Both rounds."""
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002  pfl draws from numpy's global generator
    parts = [CHECK, TIMED]
    settings = Settings.read(folder / CHECK)
    texts = {f"{part}/{site}": (folder / part, site) for part in parts for site in range(settings.sites)}
    users = iter(texts)  # every site once, those of the small round first

    def text_of(user: str) -> Dataset:
        return Shuffled(SiteText.read(*texts[user]), user)

    net = Net(initial(folder / CHECK), settings.dropout)
    net.losses = []
    create: Any = partial(torch.optim.SGD, weight_decay=settings.weight_decay, fused=True)
    model = PyTorchModel(net, create, torch.optim.SGD(net.parameters(), lr=1.0))
    data = FederatedDataset(text_of, lambda: next(users))
    backend = SimulatedBackend(data, data, [WeightByDatapoints()])
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=len(parts),
            evaluation_frequency=len(parts),
            train_cohort_size=settings.sites,
            val_cohort_size=0,
        ),
        backend,
        model,
        NNTrainHyperParams(
            local_num_epochs=len(SiteText.read(folder / CHECK, 0).orders),
            local_learning_rate=settings.learning_rate,
            local_batch_size=settings.batch_size,
        ),
        callbacks=[Rounds(folder, parts)],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
