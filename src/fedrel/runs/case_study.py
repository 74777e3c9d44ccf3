"""The denoising case study: a few triples followed through training, sentence by sentence (the paper's Table 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrel.extractors.document.find import Finding, Found, find
from fedrel.runs.records import Case, Round, Sentence

if TYPE_CHECKING:
    from fedrel.data.documents import DocumentView
    from fedrel.data.partition import Partition
    from fedrel.data.sentences import SentenceCorpus
    from fedrel.extractors.document.marked_pieces import DocumentInputs
    from fedrel.extractors.document.network import DocumentTransformer


Ints = npt.NDArray[np.int64]
TELLING = (3, 8)  # sentences a triple should have: enough to choose from, few enough to read


def watched_rows(corpus: SentenceCorpus, train: Ints, truth_known: bool, triples: int) -> Ints:
    """The rows of the most telling triples: related pairs with several sentences, of various relations.

    Where the truth is known, triples of which some sentences express the relation and some do not.
    """
    if not triples:
        return np.zeros(0, dtype=np.int64)
    facts = train[np.asarray(corpus.relation[train]) != 0]
    triple, inverse, counts = np.unique(corpus.triple[facts], return_inverse=True, return_counts=True)
    telling = (counts >= TELLING[0]) & (counts <= TELLING[1])
    if truth_known:
        expressing = np.bincount(inverse, weights=corpus.expresses[facts] == 1, minlength=len(triple))
        telling &= (expressing > 0) & (expressing < counts)
    chosen: list[int] = []
    seen: set[int] = set()
    for at in np.argsort(-counts * telling, kind="stable"):
        relation = int(corpus.triples[triple[at], 1])
        if len(chosen) < triples and telling[at] and relation not in seen:
            chosen.append(int(triple[at]))
            seen.add(relation)
    return np.sort(facts[np.isin(corpus.triple[facts], chosen)])


def case_study(
    corpus: SentenceCorpus, partition: Partition, watched: Ints, rounds: Iterable[Round]
) -> list[Case]:
    """For each watched triple its sentences, where they are, and how much was trained on each when it could be.

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


LOOKED_THROUGH = 64  # documents, for some in which anything is found
EACH = 5  # findings of a document that are shown, the surest


def evidence(
    extractor: DocumentTransformer, inputs: DocumentInputs, rows: Ints, documents: int
) -> list[dict[str, Any]]:
    """So many of the first documents in which anything is found, as `evidence.json` has them."""
    relations = list(inputs.corpus.relations)
    found = by_document(find(extractor, inputs, rows[:LOOKED_THROUGH], relations))
    shown = []
    for row, one in islice(found, documents):
        facts = _facts(inputs.corpus.view(row))
        for finding in one["findings"]:
            finding["right"] = (finding["h"]["id"], finding["relation"], finding["t"]["id"]) in facts
        shown.append(one)
    return shown


def by_document(findings: Iterable[Finding]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Findings that come document by document: each one's row, its text, and the surest that were found in it."""
    for row, group in groupby(findings, key=lambda one: one.row):
        own = sorted(group, key=lambda one: -one.probability)
        told = [finding_as_json(one) for one in own[:EACH]]
        yield row, {"document": own[0].document, "text": own[0].text, "findings": told}


def finding_as_json(found: Finding) -> dict[str, Any]:
    """A relation found in a document as it is written."""
    return {
        "document": found.document,
        "h": _entity(found.head),
        "relation": found.relation,
        "t": _entity(found.tail),
        "probability": round(found.probability, 6),
        "evidence": [
            {"text": one.text, "start": one.start, "end": one.end, "share": round(one.share, 6)}
            for one in found.evidence
        ],
    }


def _entity(entity: Found) -> dict[str, Any]:
    return {
        "id": entity.id,
        "name": entity.name,
        "type": entity.type,
        "mentions": [list(mention) for mention in entity.mentions],
    }


def _facts(view: DocumentView) -> set[tuple[str, str, str]]:
    """What the document's annotators found, by the entities' ids."""
    ids, relations = view.entity_ids, list(view.corpus.relations)
    return {
        (ids[head], relations[relation], ids[tail])
        for (head, tail), labels in zip(view.pairs.tolist(), view.labels, strict=True)
        for relation in np.flatnonzero(labels[1:]) + 1
    }
