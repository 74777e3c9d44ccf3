"""Trained models: `load_model` opens one, which predicts the relations of entity pairs or finds them in documents.

Sentences are given as strings with marked entities, as dictionaries, or as a reader's instances. In a string,
`<e1>...</e1>` is the head and `<e2>...</e2>` the tail, as in SemEval-2010 Task 8; they may come in either order.
`<e1:GENE>...</e1>` also gives the entity's type, which models that blind entities need. An entity's id is its text:
sentences that mention the same two texts are pooled.

A model of documents also says which tokens it looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedrel.data.annotations import Document
from fedrel.data.bags import SCORED_AT_ONCE, Bags, singles, slices
from fedrel.data.documents import DocumentCorpus
from fedrel.data.mentions import unmarked
from fedrel.data.readers.docred import DocRED
from fedrel.data.readers.opennre import Record
from fedrel.data.readers.pubtator import PubTator
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance, SentenceCorpus
from fedrel.data.store import TEST
from fedrel.data.text_files import lines
from fedrel.errors import UserError, some_of
from fedrel.evaluation.tasks import UNTUNED
from fedrel.extractors.batches import Inputs
from fedrel.extractors.findings import Finding
from fedrel.extractors.saved import SavedModel, open_saved
from fedrel.files import ScratchFolder

Sentence = Instance | str | Mapping[str, Any]
"""An instance, a string with marked entities, or a dictionary as a line of OpenNRE's JSON."""

SHOWN = 5  # sites that an error names

DocumentText = Document | str | Mapping[str, Any]
"""A document, one or more of them in PubTator's form, or one of DocRED's JSON objects."""


@dataclass(frozen=True, slots=True)
class Support:
    """A sentence that a prediction is based on, and the probability of the relation by that sentence alone."""

    text: str
    head: tuple[int, int]  # characters
    tail: tuple[int, int]
    source: str
    probability: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """A relation of an entity pair, predicted from all sentences that mention the pair."""

    head: str  # its id
    head_name: str
    relation: str
    tail: str
    tail_name: str
    probability: float
    sentences: tuple[Support, ...]  # the most probable first


def load_model(folder: str | Path) -> Model | DocumentModel:
    """Open a trained model, given its folder or that of the run that trained it.

    What comes back has `relations` and `predict`: a `Model` for sentences or a `DocumentModel` for documents,
    whichever the run was about.

        model = fedrel.load_model("runs/first")
        model.predict("<e1>Aspirin</e1> relieves <e2>headache</e2>")
    """
    folder = Path(folder)
    own = folder / "model" if (folder / "model").is_dir() else folder
    sites = [path.parent.name for path in sorted(own.glob("*/config.json"))]
    if sites and not (own / "config.json").exists():
        problem = f"has a model for each site: {some_of(sites, SHOWN)}"
        raise UserError(problem, file=own, hint=f"choose one, as {own / sites[0]}")
    saved = open_saved(own)
    return DocumentModel(saved) if saved.kind.unit == "documents" else Model(saved)


class Model:
    """A trained extractor for sentences."""

    unit: Literal["sentences"] = "sentences"

    def __init__(self, saved: SavedModel) -> None:
        self.extractor, self.relations, self.head = saved.trained.extractor, saved.relations, saved.head
        self.method, self.tuned = saved.method, saved.threshold is not None
        self.threshold = UNTUNED if saved.threshold is None else saved.threshold
        self._read = saved.trained.read

    def predict(
        self, sentences: Iterable[Sentence] | Sentence, *, threshold: float | None = None
    ) -> list[Prediction]:
        """The relations of each pair with a probability of at least `threshold`, the most probable first.

        Without one, the model's own `threshold` counts, which was tuned on the development set.
        A sentence is a string with its entities marked (`<e1>Aspirin</e1> relieves <e2>headache</e2>`), a
        dictionary as a line of OpenNRE's JSON (`text`, `h` and `t`), or an `Instance`, as readers yield them. All
        sentences that mention a pair are pooled, wherever they are in the input. Relations that they are labelled
        with do not count.
        """
        import torch

        least = self.threshold if threshold is None else threshold
        found: list[Prediction] = []
        with ScratchFolder() as scratch, torch.inference_mode():
            # As columns on disk: the input may be larger than memory.
            asked = ((TEST, _without_label(one)) for one in instances(sentences))
            corpus = SentenceCorpus.build(asked, Path(scratch) / "input", [NA])
            inputs = self._read(corpus, Path(scratch))
            for bags in slices(corpus.bags_by_pair(corpus.rows(TEST)), SCORED_AT_ONCE):
                found += self._predictions(corpus, inputs, bags, least)
        return sorted(found, key=lambda one: -one.probability)

    def sentence_probabilities(self, sentences: Iterable[Sentence] | Sentence) -> npt.NDArray[np.float32]:
        """p(r|s) of every sentence for each of `relations`, [S, R], in order, each sentence on its own."""
        import torch

        from fedrel.extractors.heads import sentence_probabilities

        found = [np.zeros((0, len(self.relations)), np.float32)]
        with ScratchFolder() as scratch, torch.inference_mode():
            asked = ((TEST, _without_label(one)) for one in instances(sentences))
            corpus = SentenceCorpus.build(asked, Path(scratch) / "input", [NA])
            inputs = self._read(corpus, Path(scratch))
            rows = corpus.rows(TEST)
            none = np.zeros(len(rows), np.int64)
            for bags in slices(singles(rows, none, none), SCORED_AT_ONCE):
                found.append(sentence_probabilities(self.extractor, inputs.batch(bags)).float().numpy())
        return np.concatenate(found)

    def _predictions(
        self, corpus: SentenceCorpus, inputs: Inputs, bags: Bags, threshold: float
    ) -> Iterator[Prediction]:
        from fedrel.extractors.heads import HEADS, sentence_probabilities

        batch = inputs.batch(bags)
        pooled = HEADS[self.head].probabilities(self.extractor, batch).numpy()
        single = sentence_probabilities(self.extractor, batch).numpy()
        for bag, relation in np.argwhere(pooled >= threshold).tolist():
            if self.relations[relation] == NA:
                continue
            span = slice(bags.bounds[bag], bags.bounds[bag + 1])
            sentences = [
                Support(
                    text=corpus.text_of(row),
                    head=tuple(corpus.head_span[row].tolist()),
                    tail=tuple(corpus.tail_span[row].tolist()),
                    source=corpus.sources[int(corpus.source[row])],
                    probability=float(probability),
                )
                for row, probability in zip(bags.rows[span], single[span, relation], strict=True)
            ]
            head, tail = corpus.pairs[corpus.pair[bags.rows[span.start]]].tolist()
            yield Prediction(
                head=corpus.entities[head],
                head_name=corpus.names[head],
                relation=self.relations[relation],
                tail=corpus.entities[tail],
                tail_name=corpus.names[tail],
                probability=float(pooled[bag, relation]),
                sentences=tuple(sorted(sentences, key=lambda one: -one.probability)),
            )


def instances(sentences: Iterable[Sentence] | Sentence) -> Iterator[Instance]:
    """The sentences as instances, one after another; a single one may be given as it is."""
    match sentences:
        case str() | Mapping() | Instance():
            sentences = [sentences]
    for number, one in enumerate(sentences, 1):
        match one:
            case str():
                yield parse(one, number)
            case Mapping():
                yield Record(dict(one), Path("sentences"), number).instance(labelled=False)
            case _:
                yield one


def parse(text: str, number: int = 1) -> Instance:
    """The instance that a string with marked entities stands for; errors name the sentence by its number.

    >>> found = parse("<e1:DRUG>Aspirin</e1> relieves <e2>headache</e2>")
    >>> found.text, found.head, found.tail.start
    ('Aspirin relieves headache', Mention(id='Aspirin', name='Aspirin', start=0, end=7, type='DRUG'), 17)
    """
    try:
        return unmarked(text)
    except UserError as error:
        raise UserError(f"sentence {number}: {error.problem}", hint=error.hint) from error


class DocumentModel:
    """A trained extractor for documents, and the rules by which it chooses the pairs to ask about."""

    unit: Literal["documents"] = "documents"

    def __init__(self, saved: SavedModel) -> None:
        self.extractor, self.relations = saved.trained.extractor, saved.relations
        self.method, self.tuned = saved.method, saved.threshold is not None
        self.threshold = UNTUNED if saved.threshold is None else saved.threshold
        self._saved, self.pairs = saved, saved.pairs

    def read(self, path: Path) -> Iterator[Document]:
        """The documents of a PubTator or DocRED file, with the pairs that this model is for."""
        first = next((line.strip() for _, line in lines(path) if line.strip()), "")
        if first[:1] in ("[", "{"):
            return DocRED().read(path, pair_types=self.pairs["pair_types"])
        return PubTator().read(path, **self.pairs)

    def predict(
        self, documents: Iterable[DocumentText] | DocumentText, *, threshold: float | None = None
    ) -> list[Finding]:
        """The relations with a probability of at least `threshold`, the most probable first.

        Without one, the model's own `threshold` counts, which was tuned on the development set.
        A document is a `Document`, as `read` yields them, text in PubTator's form (title, abstract and mentions; it
        may hold several documents), or one of DocRED's JSON objects. Relations that it is annotated with do not
        count.
        """
        with ScratchFolder() as scratch:
            # As columns on disk: the input may be larger than memory.
            found = self._documents(documents, Path(scratch))
            asked = ((TEST, replace(one, facts=())) for one in found)
            corpus = DocumentCorpus.build(asked, Path(scratch) / "input", [NA])
            if not len(corpus):
                return []
            inputs, rows = self._saved.trained.read(corpus, Path(scratch)), corpus.rows(TEST)
            least = self.threshold if threshold is None else threshold
            findings = self._saved.kind.find(self.extractor, inputs, rows, self.relations, least)
            return sorted(findings, key=lambda one: -one.probability)

    def _documents(
        self, documents: Iterable[DocumentText] | DocumentText, scratch: Path
    ) -> Iterator[Document]:
        """The documents in whatever form they are given; a single one may be given as it is."""
        match documents:
            case str() | Mapping() | Document():
                documents = [documents]
        for number, one in enumerate(documents, 1):
            match one:
                case str():
                    yield from self._parsed(one, number, scratch)
                case Mapping():
                    yield from self._parsed(json.dumps([one]), number, scratch)
                case _:
                    yield one

    def _parsed(self, text: str, number: int, scratch: Path) -> Iterator[Document]:
        """The documents in a text; an error names the text by its number."""
        file = scratch / "text"
        file.write_text(text, encoding="utf-8")
        try:
            yield from self.read(file)
        except UserError as error:
            where = f"text {number}"
            raise UserError(error.problem, file=where, line=error.line, hint=error.hint) from error


def _without_label(instance: Instance) -> Instance:
    return replace(instance, relation=NA, expresses=None)
