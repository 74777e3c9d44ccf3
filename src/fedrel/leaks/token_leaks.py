"""Which tokens are in a site's sentences, and where? The span check on an update of a transformer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrel.extractors.base import Extractor
from fedrel.leaks.crossings import AttackedRound
from fedrel.leaks.span_check import NEAR, distances, rouge, span, token_f1
from fedrel.tensors.weights import Weights

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FIRST = "encoder.model.encoder.layer.0.attention.self."
LAYERS = ("query.weight", "key.weight", "value.weight")
WORDS = "words.weight"
EVERYTHING = "an update is of more tokens than its first layer tells apart: everything is in their span"


@dataclass(frozen=True)
class FoundTokens:
    """What was read of one site's sentences."""

    f1: float
    rouge_1: float | None
    rouge_2: float | None
    """Of a single sentence; of several, the order of what was found is not known."""


def found_tokens(
    round_: AttackedRound,
    extractor: Extractor,
    sentences: Callable[[int], Sequence[Ints]],
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
        for site in view.sites:
            read = read_tokens(basis, base, extractor, sentences(site))
            if read and len(read[0]) > len(base[WORDS]) / 2:
                return EVERYTHING
            found.append(_against(read, sentences(site)))
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


def inputs_at(place: int, base: Weights, extractor: Extractor) -> Floats:
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
    inputs: Floats = states[0].double().numpy()
    return inputs


def _against(found: Sequence[Ints], sentences: Sequence[Ints]) -> FoundTokens:
    """What was found against what there is."""
    named, true = (set(np.concatenate([*parts, []]).astype(int).tolist()) for parts in (found, sentences))
    if len(sentences) > 1:
        return FoundTokens(token_f1(named, true), None, None)
    text, own = [int(near[0]) for near in found], sentences[0].tolist()
    return FoundTokens(token_f1(named, true), rouge(1, text, own), rouge(2, text, own))


def mean_of(found: Sequence[FoundTokens]) -> tuple[float, float | None, float | None]:
    """The means over sites; of ROUGE, over those with a single sentence."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    f1 = mean([one.f1 for one in found])
    assert f1 is not None, "there is at least one site"
    return f1, mean([one.rouge_1 for one in found]), mean([one.rouge_2 for one in found])
