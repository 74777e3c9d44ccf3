"""A simulation's data divided among real folders: each site gets its own sentences, the coordinator its own.

All keep the numbers of the whole corpus for relations, words and facts, and the order of its sentences: what the
sites would agree on by publishing it. So a run between the folders must lead to the weights of the simulation.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrel.config.schema import Config
from fedrel.data.load import Dataset
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import layout_of
from fedrel.deployment.artefacts import agreed_part
from fedrel.deployment.publishing import CoordinatorData, save_coordinator
from fedrel.deployment.site_preparation import only_own_rows
from fedrel.extractors.words import WordInputs
from fedrel.federation.site_data import SiteData
from fedrel.runs.prepare import Preparation

ARTEFACTS = {"config": "1" * 64, "relations": "2" * 64}
_RAGGED = {"tokens": "starts", "text": "text_starts"}


def divide(config: Config, ready: Preparation, coordinator: Path, sites: list[Path]) -> None:
    """Write the coordinator's and the sites' folders, as `coordinator publish` and `site prepare` would."""
    whole, validation = ready.site_data, ready.site_data.validation
    assert whole.partition.sites == len(sites)
    own = np.unique(np.concatenate([ready.dataset.dev, ready.dataset.test, validation]))
    held = _site_data(whole, own, coordinator / "preparation" / "corpus")
    held = replace(held, partition=only_own_rows(np.zeros(0), 0, whole.partition.names))
    dev, test = (np.searchsorted(own, rows) for rows in (ready.dataset.dev, ready.dataset.test))
    data = Dataset(held.corpus, np.zeros(0, np.int64), dev, test)
    save_coordinator(
        coordinator / "preparation",
        CoordinatorData(Preparation(data, held), len(whole.corpus.triples), ARTEFACTS),
    )
    for number, folder in enumerate(sites):
        mine = whole.partition.rows(number)
        rows = np.unique(np.concatenate([mine, validation]))
        site_data = _site_data(whole, rows, folder / "materials" / "corpus")
        part = only_own_rows(np.searchsorted(rows, mine), number, whole.partition.names)
        replace(site_data, partition=part).save(folder / "materials")
        prepared_for(config, folder)


def prepared_for(config: Config, site: Path) -> None:
    """Let a site take part in this experiment."""
    (site / "config.json").write_text(config.model_dump_json())
    (site / "artefacts.json").write_text(json.dumps(ARTEFACTS))
    assert agreed_part(config)


def _site_data(whole: SiteData, rows: np.ndarray, folder: Path) -> SiteData:
    """Of the rows alone; nobody follows them, and no journal leaves a site."""
    corpus, words = subset(whole.corpus, rows, folder)
    assert isinstance(whole.inputs, WordInputs)
    return replace(
        whole,
        text=corpus,
        inputs=replace(whole.inputs, corpus=corpus, lookup=whole.inputs.lookup[words]),
        validation=np.searchsorted(rows, whole.validation),
        watched=np.zeros(0, np.int64),
        truth_known=False,
    )


def subset(corpus: SentenceCorpus, rows: np.ndarray, folder: Path) -> tuple[SentenceCorpus, np.ndarray]:
    """Some rows of a corpus as one of their own, and which of its words they have."""
    columns: dict[str, Any] = {"pairs": corpus.pairs, "triples": corpus.triples}
    for name, starts in _RAGGED.items():
        bounds = getattr(corpus, starts)
        parts = [getattr(corpus, name)[bounds[row] : bounds[row + 1]] for row in rows]
        columns[name] = np.concatenate(parts)
        columns[starts] = np.cumsum([0, *map(len, parts)])
    words, columns["tokens"] = np.unique(columns["tokens"], return_inverse=True)
    columns["words"] = [corpus.words[int(word)] for word in words]
    for name in layout_of(SentenceCorpus).columns:
        if hasattr(corpus, name) and name not in columns:
            columns[name] = getattr(corpus, name)[rows]
    return corpus.copy(folder, columns), words
