"""Which tokens are in a site's sentences, and where? The span check on an update of a transformer.

The check is DAGER's: Petrov, Dimitrov, Baader, Müller, Vechev 2024, DAGER: Exact Gradient Inversion for Large
Language Models. The gradient of a linear layer is a sum over tokens of an output's gradient times the layer's
input, dL/dW = sum of δ xᵀ. While a batch has fewer tokens than a token has numbers, its rows span just the inputs
that occurred. The inputs of a transformer's first layer depend on nothing but a token and its place, so each of
them can be computed, and is in the batch if it lies in the span (section 5, the first step of Algorithm 1). Plain
SGD's update is a sum of such gradients. It works while embeddings are those that the attacker knows and nothing is
dropped in training.

It tells for each place which tokens stand there in some sentence. Which of them belong together DAGER finds by the
second layer's span, at a cost that grows with the number of combinations. Here the attacker takes at each place the
token that most often follows the one before in its own text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fedrel.extractors.base import Extractor
from fedrel.leaks.crossings import AttackedRound
from fedrel.tensors.weights import Weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FIRST = "encoder.model.encoder.layer.0.attention.self."
LAYERS = ("query.weight", "key.weight", "value.weight")
WORDS = "words.weight"
EVERYTHING = "an update is of more tokens than its first layer tells apart: everything is in their span"

NEAR = 0.01  # of an input's length: how far from the span it may be
_FLOAT32 = 2.0**-24  # the relative rounding of a weight


@dataclass(frozen=True)
class FoundTokens:
    """What was read of one site's sentences."""

    f1: float
    rouge_1: float
    rouge_2: float


class Follows:
    """How often a token follows another in sentences of the attacker's, and which tokens end them."""

    def __init__(self, sentences: Sequence[Ints]) -> None:
        lists = [one.tolist() for one in sentences]
        self.ends = {one[-1] for one in lists}
        self._pairs = Counter(pair for one in lists for pair in pairwise(one))

    def joined(self, read: Sequence[Ints], count: int) -> list[list[int]]:
        """So many sentences of the tokens that were read at each place.

        Every token at a place is used once before one is used twice.
        """
        texts: list[list[int]] = [[] for _ in range(count)]
        for near in read:
            every = near.tolist()
            left, waiting = list(every), [text for text in texts if not text or text[-1] not in self.ends]
            while waiting:
                left = left or list(every)
                text, token = max(
                    ((text, token) for text in waiting for token in left),
                    key=lambda pair: self._pairs[pair[0][-1], pair[1]] if pair[0] else 0,
                )
                waiting = [one for one in waiting if one is not text]
                left.remove(token)
                text.append(token)
        return texts


def found_tokens(
    round_: AttackedRound,
    extractor: Extractor,
    sentences: Callable[[int], Sequence[Ints]],
    follows: Follows,
) -> list[FoundTokens] | str:
    """What each view tells of each of its sites' sentences, given as ids of pieces; or why nothing can be read."""
    base = round_.base
    names = [f"{FIRST}{name}" for name in LAYERS]
    if any(name not in base for name in names) or WORDS not in base:
        return "the first layer or its embeddings are not trained, or there is none"
    found: list[FoundTokens] = []
    for view in round_.views:
        if view.weights is None:
            return "no weights leave a site"
        steps = [(view.weights[name] - base[name]).astype(np.float64) for name in names]
        basis = span(steps, max(float(np.abs(base[name]).max()) for name in names))
        if basis is None:
            return EVERYTHING
        true = [sentences(site) for site in view.sites]
        every = [one for some in true for one in some]
        read = read_tokens(basis, base, extractor, every)
        if read and len(read[0]) > len(base[WORDS]) / 2:
            return EVERYTHING
        texts = follows.joined(read, len(every))
        found += [_against(read, texts, own) for own in true]
    return found


def read_tokens(basis: Floats, base: Weights, extractor: Extractor, sentences: Sequence[Ints]) -> list[Ints]:
    """For each place, the tokens whose input is in the span, the nearest first.

    Places go on to the longest of the sentences; DAGER itself stops at the first place where nothing is found.
    """
    found: list[Ints] = []
    for place in range(max(len(one) for one in sentences)):
        far = distances(basis, inputs_at(place, base, extractor))
        order = np.argsort(far, kind="stable")
        near = order[far[order] < NEAR]
        if not len(near):
            break
        found.append(near)
    return found


def inputs_at(place: int, base: Weights, extractor: Extractor) -> npt.NDArray[np.float32]:
    """The first layer's input for every piece of the vocabulary at a place, [V, d]."""
    import torch

    vectors = torch.from_numpy(np.ascontiguousarray(base[WORDS][1:]))  # its first row is the gap
    extractor.begin(base)
    extractor.eval()
    model = extractor.encoder.model  # type: ignore[union-attr]
    from fedrel.extractors.transformer.encoder_loading import positions_begin

    places = torch.full((1, len(vectors)), place + positions_begin(model.config))  # type: ignore[union-attr]
    with torch.no_grad():
        states = model.embeddings(  # type: ignore[operator, union-attr]
            inputs_embeds=vectors[None], position_ids=places, token_type_ids=torch.zeros_like(places)
        )
    inputs: npt.NDArray[np.float32] = states[0].numpy()
    return inputs


def _against(read: Sequence[Ints], texts: Sequence[Sequence[int]], sentences: Sequence[Ints]) -> FoundTokens:
    """What was found against what there is; each sentence counts by the text that is nearest to it."""
    named, true = (set(np.concatenate([*parts, []]).astype(int).tolist()) for parts in (read, sentences))
    best = [
        max((rouge(1, text, own), rouge(2, text, own)) for text in texts)
        for own in (one.tolist() for one in sentences)
    ]
    return FoundTokens(token_f1(named, true), *(float(one) for one in np.mean(best, axis=0)))


def mean_of(found: Sequence[FoundTokens]) -> tuple[float, float, float]:
    """The means over sites."""
    f1, one, two = np.mean([(each.f1, each.rouge_1, each.rouge_2) for each in found], axis=0)
    return float(f1), float(one), float(two)


def span(steps: Sequence[Floats], largest: float) -> Floats | None:
    """A basis of the rows of some layers' steps, [r, d]; None if they span everything, so that all would fit.

    `largest` is the largest weight: what rounding it may explain is no direction.
    """
    stacked = np.concatenate(steps).astype(np.float64)
    _, size, rows = np.linalg.svd(stacked, full_matrices=False)
    rounding = largest * _FLOAT32 * (np.sqrt(len(stacked)) + np.sqrt(stacked.shape[1]))
    basis: Floats = rows[size > max(rounding, 1e-6 * size[0])]
    return None if len(basis) >= stacked.shape[1] else basis


def distances(basis: Floats, inputs: Floats | npt.NDArray[np.float32]) -> Floats:
    """How far each input is from the span, in parts of its length; of float32, to a thousandth."""
    lengths = np.maximum(np.linalg.norm(inputs, axis=1), 1e-12)
    inside = inputs @ basis.T.astype(inputs.dtype)
    outside = np.maximum(lengths**2 - np.square(inside).sum(1), 0)
    found: Floats = np.sqrt(outside) / lengths
    return found


def token_f1(found: AbstractSet[int], true: AbstractSet[int]) -> float:
    """F1 of tokens, wherever they are: sums of inputs of one token at two places can be inputs at a third.

    >>> token_f1({1, 2}, {1, 3, 4})
    0.4
    """
    return 2 * len(found & true) / max(len(found) + len(true), 1)


def rouge(n: int, found: Sequence[int], true: Sequence[int]) -> float:
    """ROUGE-N as F1: of all runs of n tokens, those that both have.

    >>> rouge(1, [1, 2, 3], [1, 2, 4]), rouge(2, [1, 2, 3], [1, 2, 4])
    (0.6666666666666666, 0.5)
    """
    runs = [Counter(zip(*(text[start:] for start in range(n)), strict=False)) for text in (found, true)]
    both, total = sum((runs[0] & runs[1]).values()), sum(sum(one.values()) for one in runs)
    return 2 * both / max(total, 1)
