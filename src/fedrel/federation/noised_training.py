"""DP-SGD at one site in one round (`privacy.dp.level = "sentence"`): its steps, and how a method's loss takes them.

Where kernels cannot train what is asked for, `batches` gives a method one example at a time, and `step` clips and
adds up its gradient. So whatever a loss compares within a batch, it sees one example, and what that can change is
bounded. An example is a sentence, or a bag where the bag head reads bags, or a document.

Examples are drawn by Poisson sampling. Accounting assumes that each example is in a step with the same
probability, independently of all others, and that nobody else knows which were: so the sizes of batches vary, some
are empty, and there are no epochs in which every example has its turn. In a simulation all randomness follows from
the run's seed. At a real site it comes from the operating system, anew for every request: a coordinator that knows
the seed could take the noise off again, and one that asks twice could subtract two answers that had the same
noise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from fedrel.data.bags import Bags
from fedrel.extractors.objective import DPSteps
from fedrel.federation.messages import RefusedError
from fedrel.federation.site_text import COORDINATOR, SiteText
from fedrel.privacy.differential_privacy import local_steps
from fedrel.seeding import numpy_generator

if TYPE_CHECKING:
    import torch

    from fedrel.config.config_sections import DifferentialPrivacy
    from fedrel.extractors.base import Fitted
    from fedrel.extractors.batches import Batch
    from fedrel.extractors.dp_sgd import ClippedSum
    from fedrel.extractors.objective import Objective
    from fedrel.extractors.optimisers import Optimiser
    from fedrel.federation.resident import ResidentModel


def noised_training(text: SiteText, model: ResidentModel) -> NoisedTraining | None:
    """The noised training of a site, if its config asks for that; the coordinator's own text is not protected."""
    dp = model.privacy.sentence_noise
    return None if dp is None or text.number == COORDINATOR else NoisedTraining(text, model, dp)


class NoisedTraining:
    """The noised training of a site in a round: there is one, and what it costs follows from public numbers.

    These are the config and how many examples the site holds, whichever of them the method trains on: so whoever
    knows them can tell how much of a budget is spent (`local_steps`).
    """

    def __init__(self, text: SiteText, model: ResidentModel, dp: DifferentialPrivacy) -> None:
        self._text, self._model, self._dp = text, model, dp
        self._begun = False
        self._sum: ClippedSum | None = None
        self._open = False  # whether an example waits for its step

    def fit(self, bags: Bags, objective: Objective) -> Fitted | None:
        """Train with the extractor's kernels, as the model is now; None if they cannot do it."""
        model = self._model
        if not (model.can_fit(objective.head) and model.extractor.can_fit_with_noise(objective.head)):
            return None
        return model.fit_with_noise(objective, self._text.round, self._text.number, bags, self._steps(bags))

    def batches(self, bags: Bags, optimiser: Callable[[int], Optimiser]) -> Iterator[Batch]:
        """The examples of all steps, each as a batch by itself; after those of a step, the step is taken.

        `optimiser` gets the number of steps.
        """
        from fedrel.extractors.dp_sgd import ClippedSum

        steps = self._steps(bags)
        takes = optimiser(len(steps.batches))
        self._sum = ClippedSum(self._model.extractor, steps)
        for which in steps.batches:
            for example in which:
                takes.zero_grad()
                self._open = True
                yield self._model.batch(bags.take(np.array([example])))
            self._open = False
            self._sum.finish()
            takes.step()

    def add(self, loss: torch.Tensor) -> None:
        """Add the gradient of one example's loss to its step's."""
        if not self._open or self._sum is None:
            raise RefusedError(
                "the method takes more than one step for an example, which noise does not cover"
            )
        self._open = False
        loss.backward()  # type: ignore[no-untyped-call]
        self._sum.add()

    def _steps(self, bags: Bags) -> DPSteps:
        if self._begun:
            raise RefusedError("the method trains twice in a round, and noise is agreed for once")
        self._begun = True
        steps = local_steps(self._dp, self._model.training, len(self._text.rows))
        sampling, noise = self._randomness("sampling"), self._randomness("noise")
        return DPSteps(
            batches=list(poisson_batches(len(bags), steps.rate, steps.count, sampling)),
            expected=steps.rate * len(bags),
            clip=self._dp.clip,
            noise=self._dp.noise,
            draw=noise.normal,
        )

    def _randomness(self, purpose: str) -> Randomness:
        if self._model.rules is not None:
            return SystemRandomness()
        return SeededRandomness(
            numpy_generator(self._model.seed, f"dp {purpose}", self._text.round, self._text.number)
        )


class Randomness(Protocol):
    """Where numbers are drawn from."""

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """So many numbers from 0 to below 1."""

    def normal(self, count: int) -> npt.NDArray[np.float32]:
        """So many numbers with mean 0 and variance 1, normally distributed."""


class SeededRandomness:
    """Numbers that follow from a generator's seed: for simulations."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """So many numbers from 0 to below 1."""
        return self._generator.random(count)

    def normal(self, count: int) -> npt.NDArray[np.float32]:
        """So many numbers with mean 0 and variance 1, normally distributed."""
        return self._generator.standard_normal(count, np.float32)


class SystemRandomness:
    """Numbers that nobody can predict or repeat: a stream of ChaCha20 under a key of the operating system's.

    Every call has a new key.
    """

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """So many numbers from 0 to below 1."""
        fine = np.frombuffer(_stream(8 * count), np.uint64) >> np.uint64(11)
        return fine.astype(np.float64) * 2.0**-53

    def normal(self, count: int) -> npt.NDArray[np.float32]:
        """So many numbers with mean 0 and variance 1, normally distributed (Box and Muller 1958)."""
        pairs = (count + 1) // 2
        stream = _stream(12 * pairs)
        fine = (np.frombuffer(stream, np.uint64, pairs) >> np.uint64(11)).astype(np.float64)
        coarse = np.frombuffer(stream, np.uint32, pairs, 8 * pairs).astype(np.float32)
        radius = np.sqrt(-2 * np.log((fine + 1) * 2.0**-53)).astype(np.float32)
        angle = coarse * np.float32(2 * np.pi * 2.0**-32)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def _stream(size: int) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    cipher = Cipher(algorithms.ChaCha20(os.urandom(32), os.urandom(16)), mode=None)
    return cipher.encryptor().update(bytes(size))


def poisson_batches(
    examples: int, rate: float, steps: int, randomness: Randomness
) -> Iterator[npt.NDArray[np.int64]]:
    """The examples of each step: each example is in a step with probability `rate`, whatever else is in it."""
    for _ in range(steps):
        yield np.flatnonzero(randomness.uniform(examples) < rate)
