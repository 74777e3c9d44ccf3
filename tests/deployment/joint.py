"""One corpus of all sites' files, numbered by the same artefacts, to compare with: no real federation has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedrel.config.schema import Config
from fedrel.data.partition import Partition
from fedrel.data.store import TRAIN
from fedrel.deployment.artefacts import Artefacts
from fedrel.deployment.site_preparation import Part, prepare_site_data, read_columns
from fedrel.federation.site_data import SiteData


def joint(
    artefacts: Artefacts,
    config: Config,
    sites: Mapping[str, Sequence[Path]],
    folder: Path,
    format: str = "text",
) -> SiteData:
    """SiteData in which every site holds what it would find by itself in its own files."""
    counts = []
    for name, files in sites.items():
        alone = read_columns([Part(TRAIN, files, format)], artefacts, folder / f"only-{name}")
        counts.append(len(alone.rows(TRAIN)))
    parts = [Part(TRAIN, files, format) for files in sites.values()]
    text = read_columns(parts, artefacts, folder / "corpus")
    edges = np.cumsum([0, *counts])
    assert edges[-1] == len(text.rows(TRAIN))
    held = [np.arange(begin, end) for begin, end in pairwise(edges)]
    held = [text.without_duplicates(rows) for rows in held]
    bounds = np.cumsum([0, *map(len, held)])
    return prepare_site_data(
        text, Partition(np.concatenate(held), bounds, tuple(sites)), artefacts, config, folder
    )
