"""Examples for the report: a few triples followed through training, and documents with what was found in them.

The first is the denoising case study of Lazy MIL (Sui et al. 2021, Table 6).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.extractors.findings import Finding, by_document
from fedrel.runs.records import Case, ReadDocument, Round, Sentence

if TYPE_CHECKING:
    from fedrel.config.config_sections import DocumentData
    from fedrel.data.documents import DocumentCorpus, DocumentView
    from fedrel.data.partition import Partition
    from fedrel.data.sentences import SentenceCorpus


Ints = npt.NDArray[np.int64]
SENTENCES = (3, 8)  # how many a triple should have: enough to choose from, few enough to read
SEARCHED = 64  # documents that are searched for some in which anything is found


def watched_rows(corpus: SentenceCorpus, train: Ints, truth_known: bool, triples: int) -> Ints:
    """The sentences of the triples to follow: related pairs with several sentences, each of another relation.

    Where the truth is known, only triples of which some sentences express the relation and some do not.
    """
    if not triples:
        return np.zeros(0, dtype=np.int64)
    facts = train[np.asarray(corpus.relation[train]) >= int(corpus.has_na)]
    triple, inverse, counts = np.unique(corpus.triple[facts], return_inverse=True, return_counts=True)
    suitable = (counts >= SENTENCES[0]) & (counts <= SENTENCES[1])
    if truth_known:
        truth = np.asarray(corpus.expresses[facts])
        for verdict in (0, 1):
            suitable &= np.bincount(inverse, weights=truth == verdict, minlength=len(triple)) > 0
    chosen: list[int] = []
    seen: set[int] = set()
    for at in np.argsort(-counts * suitable, kind="stable"):
        relation = int(corpus.triples[triple[at], 1])
        if len(chosen) < triples and suitable[at] and relation not in seen:
            chosen.append(int(triple[at]))
            seen.add(relation)
    return np.sort(facts[np.isin(corpus.triple[facts], chosen)])


def case_study(
    corpus: SentenceCorpus, partition: Partition, watched: Ints, rounds: Iterable[Round]
) -> list[Case]:
    """For each watched triple its sentences, their sites, and how much each was trained on in its site's rounds.

    `rounds` say which sites were active, and how much each watched row was trained on.
    """
    places = np.flatnonzero(np.isin(partition.order, watched))
    sites = np.searchsorted(partition.bounds, places, side="right") - 1
    site_of = dict(zip(partition.order[places].tolist(), sites.tolist(), strict=True))
    seen = dict.fromkeys(site_of, 0)
    weight = dict.fromkeys(site_of, 0.0)
    for line in rounds:
        active = set(line.active)
        for row, site in site_of.items():
            seen[row] += site in active
            weight[row] += line.watched.get(row, 0.0)
    triples: dict[int, list[Sentence]] = {}
    for row in sorted(site_of):
        truth = int(corpus.expresses[row])
        sentence = Sentence(
            row=row,
            site=site_of[row],
            text=corpus.text_of(row),
            head_span=tuple(corpus.head_span[row].tolist()),
            tail_span=tuple(corpus.tail_span[row].tolist()),
            expresses=None if truth < 0 else bool(truth),
            seen=seen[row],
            weight=weight[row] / seen[row] if seen[row] else 0.0,
        )
        triples.setdefault(int(corpus.triple[row]), []).append(sentence)
    return [_case(corpus, sentences) for sentences in triples.values()]


def _case(corpus: SentenceCorpus, sentences: list[Sentence]) -> Case:
    first = sentences[0].row
    return Case(
        head=corpus.head_name(first),
        relation=corpus.relations[int(corpus.relation[first])],
        tail=corpus.tail_name(first),
        sentences=sentences,
    )


def evidence(corpus: DocumentCorpus, findings: Iterable[Finding], documents: int) -> list[ReadDocument]:
    """The first `documents` documents in which anything is found, as `evidence.json` has them."""
    shown = []
    for row, one in islice(by_document(findings), documents):
        facts = _facts(corpus.view(row))
        read = ReadDocument.model_validate(one)
        checked = [
            found.model_copy(update={"right": (found.h.id, found.relation, found.t.id) in facts})
            for found in read.findings
        ]
        shown.append(read.model_copy(update={"findings": checked}))
    return shown


def pair_options(section: DocumentData, corpus: DocumentCorpus) -> dict[str, Any]:
    """How a trained model chooses the pairs of new documents: as they were chosen in its training documents."""
    types = section.pair_types
    if section.format == "eog":  # whose files list their pairs one by one
        first = np.repeat(corpus.entity_starts[:-1], np.diff(corpus.pair_starts))
        ends = corpus.entity_type[corpus.pairs + first[:, None]]
        types = [(corpus.types[head], corpus.types[tail]) for head, tail in np.unique(ends, axis=0).tolist()]
    return {"pair_types": types, "directions": section.directions, "id_separator": section.id_separator}


def _facts(view: DocumentView) -> set[tuple[str, str, str]]:
    """What the document's annotators found, by the entities' ids."""
    ids, relations = view.entity_ids, list(view.corpus.relations)
    return {
        (ids[head], relations[relation], ids[tail])
        for (head, tail), labels in zip(view.pairs.tolist(), view.labels, strict=True)
        for relation in np.flatnonzero(labels[1:]) + 1
    }
