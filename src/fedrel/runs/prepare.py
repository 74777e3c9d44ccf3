"""From a config to what a run works with: the corpus and its splits, the partition, the extractor's inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrel.config.schema import Config
from fedrel.data.data_check import DataCheck, check_data
from fedrel.data.load import Dataset, dataset
from fedrel.data.partition import Partition, divide, held_back, single
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import Progress
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.federation.site_data import SiteData
from fedrel.methods.by_name import method, methods
from fedrel.methods.by_name import parts as parts_of
from fedrel.runs.case_study import watched_rows
from fedrel.runs.records import LabelCounts

if TYPE_CHECKING:
    from fedrel.extractors.base import Extractor

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Preparation:
    """All that stands before the first round."""

    dataset: Dataset
    site_data: SiteData
    check: DataCheck | None = None  # of real sites, the coordinator has no data to check


def prepare(config: Config, progress: Progress | None = None) -> Preparation:
    """Read the data, or find them in the cache; partition them; read them as the extractor does."""
    _check_device(config.training.device)
    data = dataset(config.data, progress)
    for name, rows in (("training", data.train), ("dev", data.dev), ("test", data.test)):
        if not len(rows):
            problem = f"the {name} part has no {data.corpus.unit}"
            raise UserError(problem, hint="check the files and fractions in [data]")
    chosen = method(config.method, config.methods)
    if data.corpus.unit == "documents" and chosen.test_head != "none":
        problem = f"{config.method} chooses among the sentences of a bag, but the data are documents"
        raise UserError(problem, hint="choose fedavg, fedatt, fedlcc or another method without bags")
    for part in parts_of(config.method):
        if data.corpus.unit not in part.reads:
            fitting = [name for name, kind in methods().items() if data.corpus.unit in kind.reads]
            raise UserError(
                f"{part.name} needs {' or '.join(part.reads)}, but the data are {data.corpus.unit}",
                hint=f"choose among {', '.join(sorted(fitting))}",
            )
    sites, validation = held_back(data.train, config.partition.coordinator, config.seed)
    if chosen.pools_data:
        parts = single(data.train)
    else:
        parts = divide(config.partition, data.corpus, sites, config.seed)
    kind = extractor_kind(config.extractor.kind)
    inputs = kind.inputs(config.extractor, data.corpus, data.train, progress)
    truth_known, watched = data.corpus.truth_known(data.train), np.zeros(0, dtype=np.int64)
    if data.corpus.unit == "sentences":
        sentences = data.corpus.require(SentenceCorpus)
        watched = watched_rows(sentences, data.train, truth_known, config.case_study)
    site_data = SiteData(
        text=data.corpus,
        inputs=inputs,
        partition=parts,
        validation=validation,
        watched=watched,
        truth_known=truth_known,
    )
    unknown = kind.unknown_share(config.extractor, inputs, data.train)
    none_label = config.data.none_label if config.data.corpus == "files" and config.data.keep_na else None
    directions = "both" if config.data.corpus == "world" else config.data.directions
    return Preparation(data, site_data, check_data(data, parts, unknown, none_label, directions))


def new_extractor(config: Config, ready: Preparation) -> Extractor:
    """A new extractor, with the weights that a run begins with."""
    kind, relations = extractor_kind(config.extractor.kind), len(ready.dataset.corpus.relations)
    return kind.build(config.extractor, ready.site_data.inputs, relations, config.seed)


def configured_partition(config: Config, ready: Preparation) -> Partition | None:
    """The partition of the config, also for a method that pools all data: it is compared at the same sites.

    None if pooled data cannot be divided as the config says.
    """
    if not method(config.method, config.methods).pools_data:
        return ready.site_data.partition
    rows, _ = held_back(ready.dataset.train, config.partition.coordinator, config.seed)
    try:
        return divide(config.partition, ready.dataset.corpus, rows, config.seed)
    except UserError:
        return None


def _check_device(name: str) -> None:
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        problem = f"training.device {name!r} cannot be used: {str(error).splitlines()[0]}"
        raise UserError(problem, hint="'cpu' works everywhere") from error


def label_counts(ready: Preparation) -> LabelCounts:
    """n(k,c): how many training sentences, or pairs, of each relation each site holds."""
    text, parts = ready.dataset.corpus, ready.site_data.partition
    counts = parts.label_counts(text).tolist()
    return LabelCounts(sites=list(parts.names), relations=list(text.relations), counts=counts)
