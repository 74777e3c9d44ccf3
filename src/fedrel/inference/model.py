"""A trained extractor as a folder, and what it says about new text."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.extractors.saved import SavedModel, open_saved
from fedrel.inference.document_model import DocumentModel


@dataclass(frozen=True, slots=True)
class Support:
    """A sentence that a prediction rests on, and its own probability for the relation."""

    text: str
    head: tuple[int, int]  # characters
    tail: tuple[int, int]
    source: str
    probability: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """A fact that the model reads out of all sentences that mention a pair."""

    head: str  # its id
    head_name: str
    relation: str
    tail: str
    tail_name: str
    probability: float
    sentences: tuple[Support, ...]


def load_model(folder: str | Path) -> Model | DocumentModel:
    """Open a model folder, or the folder of the run that trained it.

    model = fedrel.load_model("runs/demo/lazy-mil/seed-1")
    """
    folder = Path(folder)
    if (folder / "model").is_dir():
        folder = folder / "model"
    saved = open_saved(folder)
    return DocumentModel(saved) if saved.kind.unit == "documents" else Model(saved)


class Model:
    """A trained extractor of sentences: what it knows of the relations of entity pairs."""

    def __init__(self, saved: SavedModel) -> None:
        self.extractor, self.relations, self.head = saved.trained.extractor, saved.relations, saved.head
        self._read = saved.trained.read

    def predict(self, instances: Iterable[Instance], *, threshold: float = 0.5) -> list[Prediction]:
        """The relations of each pair with a probability of at least `threshold`, surest first.

        All sentences that mention a pair are pooled, wherever they stand in the input. The instances' own
        relations are not looked at.
        """
        import torch

        from fedrel.data.bags import SCORED_AT_ONCE, slices
        from fedrel.extractors.heads import HEADS, sentence_probabilities

        found: list[Prediction] = []
        with tempfile.TemporaryDirectory(prefix="fedrel-") as scratch, torch.inference_mode():
            # Columns on disk: the input may be larger than memory.
            corpus = SentenceCorpus.build(
                ((0, _unlabelled(one)) for one in instances), Path(scratch) / "input", ["NA"]
            )
            inputs = self._read(corpus, Path(scratch))
            for part in slices(corpus.bags_by_pair(corpus.rows(0)), SCORED_AT_ONCE):
                batch = inputs.batch(part)
                pooled = HEADS[self.head].probabilities(self.extractor, batch).numpy()
                single = sentence_probabilities(self.extractor, batch).numpy()
                for bag, relation in np.argwhere(pooled >= threshold):
                    if self.relations[relation] == "NA":
                        continue
                    span = slice(part.bounds[bag], part.bounds[bag + 1])
                    sentences = [
                        Support(
                            text=corpus.text_of(row),
                            head=tuple(corpus.head_span[row].tolist()),
                            tail=tuple(corpus.tail_span[row].tolist()),
                            source=corpus.sources[int(corpus.source[row])],
                            probability=float(probability),
                        )
                        for row, probability in zip(part.rows[span], single[span, relation], strict=True)
                    ]
                    first = part.rows[part.bounds[bag]]
                    head, tail = corpus.pairs[corpus.pair[first]].tolist()
                    found.append(
                        Prediction(
                            head=corpus.entities[head],
                            head_name=corpus.names[head],
                            relation=self.relations[relation],
                            tail=corpus.entities[tail],
                            tail_name=corpus.names[tail],
                            probability=float(pooled[bag, relation]),
                            sentences=tuple(sorted(sentences, key=lambda one: -one.probability)),
                        )
                    )
        return sorted(found, key=lambda one: -one.probability)


def _unlabelled(instance: Instance) -> Instance:
    return replace(instance, relation="NA", expresses=None)
