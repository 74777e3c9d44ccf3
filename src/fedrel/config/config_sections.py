"""The largest sections of a config: `[data]` in its kinds, and `[privacy]` with `[privacy.dp]`.

Data are the built-in world, sentences in files, or documents in files. Privacy is what makes messages and models
tell less.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedrel.config.check import Section
from fedrel.config.plugins import registry

SITE = "{site}"  # in a path of [data]: the name of a site


class WorldData(Section):
    """The built-in world (docs/world.md): made-up text whose truth is known."""

    corpus: Literal["world"] = "world"
    """Chooses this kind of data."""
    unit: ClassVar[str] = "sentences"
    sentences: int = 12_000
    """Of training and dev together; the test sentences come on top."""
    relations: int = 10
    """`NA` included."""
    noise: float = 0.4
    """Share of the sentences about related pairs, over all splits, that do not state the relation."""
    popularity: float = 1.0
    """The odds of noise grow with the size of a pair's bag to this power."""
    na_share: float = 0.5
    """Share of the sentences whose pair is NA."""
    missing: float = 0.02
    """Share of the NA pairs that are related all the same."""
    bag_size: float = 4.0
    """Mean sentences a related pair."""
    bag_tail: float = 1.5
    """Shape of the bag sizes' tail: smaller is heavier."""
    pairs: int | None = None
    """Pairs of training and dev; none: NA pairs have bags of `bag_size`, too."""
    mean_length: int = 20
    """Tokens a sentence."""
    vocabulary: int = 5_000
    """Invented words, Zipf-distributed."""
    styles: int = 5
    """Writing styles; `partition.kind = "source"` makes each a site."""
    dev: float = 0.1
    """The share of `sentences` that is dev."""
    test: float = 0.2
    """How many test sentences there are, as a share of `sentences`."""
    world_seed: int = 0
    """Which world; apart from `seed`, so that several seeds can train on one world."""


class _FilesData(Section):
    """Text in files. Paths are relative to `root`, and that to FEDREL_DATA or the config file's folder.

    Natural sites: `{site}` in a path stands for a site's name, so that a file or a folder belongs to a site.
    """

    corpus: str
    """Chooses this kind of data."""
    format: str
    """The name of a reader."""
    root: Path = Path()
    """The folder that the paths below start from."""
    train: list[Path] = []
    """Files to train on."""
    dev: list[Path] = []
    """Files to choose the best round by."""
    test: list[Path] = []
    """Files for the final numbers."""
    pool: list[Path] = []
    """Instead of the three above: pool these files, drop duplicates, and split by entity pair or document."""
    fractions: tuple[float, float, float] = (0.7, 0.1, 0.2)
    """Of the pool: train, dev, test."""
    dev_fraction: float = Field(0.1, gt=0, lt=1)
    """Where no dev file is given: the share of the training pairs, or documents, kept apart for model selection."""
    split_seed: int = 0
    """Of these two splits, and of a sample."""
    sites: list[str] = []
    """Where paths have `{site}`: the sites that take part; none means all that have training files."""
    relations: Path | None = None
    """The relation map; without one, the format's own, or the training files' relations in alphabetical order."""
    none_label: str | None = None
    """What the files call the relation of an unrelated pair, `NA` here; without it, the format's own word."""
    on_error: Literal["stop", "skip"] = "stop"
    """A record that cannot be read: `stop` there, or `skip` it; `skipped.jsonl` lists what was left out."""
    max_skipped: float = Field(0.01, ge=0, le=1)
    """With `skip`: the largest share of the records that may be left out."""
    pair_types: list[tuple[str, str]] | None = None
    """Where entities are marked, not pairs: the types of head and tail that make a pair; without it, all do."""
    directions: Literal["both", "once", "annotated"] = "both"
    """Whether two entities that could stand either way round are asked about both ways, once (the one that comes
    first is the head) or as annotated (as once, and each way that is related: this gives labels away, and is for
    counts only)."""

    unit: ClassVar[str]
    # The keys that are options of readers, by the name of the option.
    reader_keys: ClassVar[Mapping[str, str]]

    @model_validator(mode="after")
    def _pool_or_split(self) -> Self:
        if bool(self.pool) == bool(self.train and self.test):
            raise ValueError("give either `pool`, or `train` and `test`")
        return self

    @model_validator(mode="after")
    def _sites_are_named(self) -> Self:
        training = [SITE in str(path) for path in (*self.pool, *self.train)]
        others = any(SITE in str(path) for path in (*self.dev, *self.test))
        if any(training) != all(training) or ((self.sites or others) and not all(training)):
            raise ValueError(f"natural sites need {SITE} in every path of `pool` or `train`")
        if len(set(self.sites)) < len(self.sites):
            raise ValueError("`sites` names a site twice")
        return self

    @model_validator(mode="after")
    def _format_is_known(self) -> Self:
        readers = registry("fedrel.readers")
        chosen = readers.find(self.format)
        if chosen.unit != self.unit:
            corpus = "documents" if chosen.unit == "documents" else "files"
            raise ValueError(f"the format {self.format!r} has {chosen.unit}: set data.corpus to {corpus!r}")
        for option, key in self.reader_keys.items():
            given = getattr(self, key) != type(self).model_fields[key].default
            if given and option not in chosen.options():
                formats = [name for name, reader in readers.all().items() if option in reader.options()]
                raise ValueError(f"`{key}` is for {', '.join(formats)}, not for {self.format!r}")
        return self

    def reader_options(self) -> dict[str, Any]:
        """What the format's reader is asked to do."""
        taken = registry("fedrel.readers").find(self.format).options()
        return {option: getattr(self, key) for option, key in self.reader_keys.items() if option in taken}

    def absolute(self, folder: Path, data: Path) -> Self:
        """With `root` as an absolute path."""
        return self.model_copy(update={"root": data / self.root})


class ColumnNames(Section):
    """Tables: the name of the column that has each thing."""

    text: str = "text"
    """The sentence."""
    relation: str = "relation"
    """Its label."""
    head: str | None = None
    """The head entity's name. Without it and `tail`, `<e1>…</e1>` and `<e2>…</e2>` mark both in the text."""
    tail: str | None = None
    """The tail entity's name."""
    head_id: str | None = None
    """The head's id in a knowledge base; without it, its name."""
    tail_id: str | None = None
    """The tail's."""
    head_type: str | None = None
    """What kind of thing the head is."""
    tail_type: str | None = None
    """And the tail."""
    head_start: str | None = None
    """The head's first character. Without the four places, names are looked for in the text."""
    head_end: str | None = None
    """The character after its last."""
    tail_start: str | None = None
    """The tail's first character."""
    tail_end: str | None = None
    """The character after its last."""
    source: str | None = None
    """Where the sentence is from: what a partition by source groups by."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        places = ("head_start", "head_end", "tail_start", "tail_end")
        for group in (("head", "tail"), places):
            if any(getattr(self, name) for name in group) and not all(getattr(self, name) for name in group):
                raise ValueError(f"name {', '.join(group[:-1])} and {group[-1]}, or none of them")
        if not self.head and any(getattr(self, name) for name in (*places, "head_id", "tail_id")):
            raise ValueError("name head and tail, too")
        return self


class FileData(_FilesData):
    """Sentences in files."""

    corpus: Literal["files"] = "files"
    """Chooses this kind of data."""
    format: str = "jsonl"
    """The name of a reader: `jsonl`, `nyt10`, `gad` or another."""
    keep_na: bool = True
    """False: leave out the sentences whose relation is `NA`, and `NA` as a class of the model."""
    sample: int | None = Field(None, ge=1)
    """Train on so many sentences only, drawn at random from the training part."""
    balanced: bool = False
    """Of the sample: as many of each relation as of any other; an error where one has too few."""
    source_field: str = "source"
    """JSON lines: the field that a partition by source groups by."""
    columns: ColumnNames = ColumnNames()
    """Tables (`csv`, `parquet`, `datasets`): the name of the column that has each thing."""

    unit: ClassVar[str] = "sentences"
    reader_keys: ClassVar[Mapping[str, str]] = {
        "source": "source_field",
        "columns": "columns",
        "pair_types": "pair_types",
        "directions": "directions",
    }

    def reader_options(self) -> dict[str, Any]:
        """What the format's reader is asked to do."""
        chosen = super().reader_options()
        if "columns" in chosen:
            chosen["columns"] = self.columns.model_dump(exclude_none=True)
        return chosen


class DocumentData(_FilesData):
    """Documents in files."""

    corpus: Literal["documents"] = "documents"
    """Chooses this kind of data."""
    format: str = "pubtator"
    """`pubtator`; `eog`, which EoG and ATLOP read; `docred`, also Re-DocRED; or another reader's name."""
    id_separator: str = "|"
    """PubTator: what joins the ids of several entities that one mention names; empty where ids are whole."""
    rel_info: Path | None = None
    """DocRED: the file that names its relations."""
    not_include: list[Path] = []
    """EoG files whose `not_include` pairs are left out (CDR's hypernym filter, for its PubTator files)."""
    mesh: Path | None = None
    """A MeSH tree: leaves out negative pairs whose tail is more general than a related one of the same head."""

    unit: ClassVar[str] = "documents"
    reader_keys: ClassVar[Mapping[str, str]] = {
        name: name for name in ("pair_types", "directions", "id_separator", "rel_info")
    }

    def reader_options(self) -> dict[str, Any]:
        """What the format's reader is asked to do."""
        chosen = super().reader_options()
        if chosen.get("rel_info"):
            chosen["rel_info"] = self.root / chosen["rel_info"]
        return chosen


class DifferentialPrivacy(Section):
    """How noise bounds what a model tells about a site, or about a sentence (docs/differential-privacy.md)."""

    level: Literal["site", "sentence"]
    """Whose presence the noise hides: `site`, all that a site holds, by noise on the sum of the sites' updates;
    `sentence`, one sentence of a site, by noise on every step of the site's own training (DP-SGD)."""
    noise: float = Field(ge=0.05, allow_inf_nan=False)
    """The noise multiplier: the standard deviation of the noise on a sum, divided by `clip`. With less than 0.05, ε
    is in the hundreds and promises nothing."""
    clip: float = Field(gt=0, allow_inf_nan=False)
    """S, the largest norm of what is added to a sum: a site's update, or a sentence's gradient. A longer one is
    scaled down to it. With `adaptive_clip`, that of the first round."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """δ: the stated ε holds but for this probability. It should be well below one in the number of sites, or of
    sentences."""
    sampling: Literal["poisson", "fixed"] = "poisson"
    """Of `site`, how a round's sites are drawn: `poisson`, each by itself with probability `training.fraction`, so
    that their number varies; `fixed`, always as many, for which only a weaker bound on ε is known."""
    adaptive_clip: float | None = Field(None, gt=0, lt=1)
    """Of `site`: the norm follows this quantile of the updates' norms, such as 0.5 (Andrew et al. 2021); none: it
    stays `clip`."""

    @model_validator(mode="after")
    def _keys_of_the_level(self) -> DifferentialPrivacy:
        if self.level == "sentence" and self.adaptive_clip is not None:
            raise ValueError('adaptive_clip is for level = "site": leave it out')
        if self.level == "sentence" and "sampling" in self.model_fields_set and self.sampling != "poisson":
            raise ValueError('with level = "sentence" sentences are always drawn by poisson sampling')
        return self


class PrivacySection(Section):
    """What makes messages tell less."""

    secure_sum: bool = False
    """The coordinator gets the sum of the sites' answers, and nothing else of any of them (docs/secure-sums.md)."""
    min_cohort: int = Field(3, ge=3)
    """The fewest sites that a secure sum may be over."""
    threshold: float | None = Field(None, ge=2 / 3, le=1)
    """The part of a site's peers that must work together to uncover a secret of it; without it, two thirds."""
    range: float = Field(4.0, gt=0, allow_inf_nan=False)
    """The largest change of a weight in a round that fits a secure sum's numbers; a larger one is clipped."""
    clip: float | None = Field(None, gt=0, allow_inf_nan=False)
    """With secure sums: the largest norm of a site's update. The site itself scales a longer one down to it, since
    nobody else sees it; none: updates are not scaled."""
    dp: DifferentialPrivacy | None = None
    """Differential privacy, a section of its own; none: no noise is added."""
    vouched: bool = False
    """Between real sites: a site trains global weights only if they are made of updates that sites vouch for
    (docs/protection.md)."""

    @model_validator(mode="after")
    def _clip_of_sums(self) -> PrivacySection:
        if self.clip is not None and not self.secure_sum:
            raise ValueError("privacy.clip is for secure sums: use aggregation.norm_bound without them")
        if self.clip is not None and self.site_noise:
            raise ValueError("privacy.dp has a clip of its own: leave privacy.clip out")
        return self

    @property
    def site_noise(self) -> DifferentialPrivacy | None:
        """The section, if noise on sums of updates hides sites."""
        return self.dp if self.dp and self.dp.level == "site" else None

    @property
    def sentence_noise(self) -> DifferentialPrivacy | None:
        """The section, if noise on the steps of local training hides sentences."""
        return self.dp if self.dp and self.dp.level == "sentence" else None
