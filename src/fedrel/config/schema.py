"""An experiment as one TOML file: every choice a field, every field with its default and what it means."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedrel.config.check import Kinds, Section, Settings, apply_settings, check
from fedrel.config.plugins import registry


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
    """Text in files. Paths are relative to `root`, and that to FEDREL_DATA or the config file's folder."""

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
    relations: Path | None = None
    """The relation map; without one, the format's own, or the training files' relations in alphabetical order."""

    unit: ClassVar[str]
    # The keys that are options of readers, by the name of the option.
    reader_keys: ClassVar[Mapping[str, str]]

    @model_validator(mode="after")
    def _pool_or_split(self) -> Self:
        if bool(self.pool) == bool(self.train and self.test):
            raise ValueError("give either `pool`, or `train` and `test`")
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
                raise ValueError(f"`{key}` is for {' and '.join(formats)}, not for {self.format!r}")
        return self

    def reader_options(self) -> dict[str, Any]:
        """What the format's reader is asked to do."""
        taken = registry("fedrel.readers").find(self.format).options()
        return {option: getattr(self, key) for option, key in self.reader_keys.items() if option in taken}

    def absolute(self, folder: Path, data: Path) -> Self:
        """With `root` as an absolute path."""
        return self.model_copy(update={"root": data / self.root})


class FileData(_FilesData):
    """Sentences in files."""

    corpus: Literal["files"] = "files"
    """Chooses this kind of data."""
    format: str = "jsonl"
    """The name of a reader: `jsonl`, `nyt10`, `gad` or another."""
    keep_na: bool = True
    """False: leave out the sentences whose relation is `NA`."""
    sample: int | None = Field(None, ge=1)
    """Train on so many sentences only, drawn at random from the training part."""
    balanced: bool = False
    """Of the sample: as many of each relation as of any other; an error where one has too few."""
    source_field: str = "source"
    """JSON lines: the field that a partition by source groups by."""

    unit: ClassVar[str] = "sentences"
    reader_keys: ClassVar[Mapping[str, str]] = {"source": "source_field"}


class DocumentData(_FilesData):
    """Documents in files."""

    corpus: Literal["documents"] = "documents"
    """Chooses this kind of data."""
    format: str = "pubtator"
    """`pubtator`; `eog`, which EoG and ATLOP read; `docred`, also Re-DocRED; or another reader's name."""
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


class PartitionSection(Section):
    """Who holds which training sentences, or documents."""

    kind: str = "iid"
    """`iid`: equal parts at random; `dirichlet`: skewed labels; `quantity`: skewed sizes; `shards`: a few labels
    a site; `source` and `file`: as the data say; `entropy`: documents alike in structural entropy. Or another
    partition's name. Documents: `iid`, `quantity` or `entropy`."""
    sites: int = Field(100, ge=1)
    """K; `source` and `file` find it in the data."""
    alpha: float = Field(0.5, gt=0, allow_inf_nan=False)
    """For `dirichlet` and `quantity`: the smaller, the less alike are the sites."""
    min_size: int = Field(0, ge=0)
    """For `dirichlet` and `quantity`: draw anew until every site has this many sentences."""
    shards_per_site: int = Field(2, ge=1)
    """For `shards`: about how many relations a site has."""
    coordinator: float = Field(0.0, ge=0, lt=1)
    """The share of the training sentences that the coordinator holds, labelled (FedED's D_v)."""
    file: Path | None = None
    """For `file`: a line for each training sentence with the site that holds it."""
    sentence_edges: Literal["clique", "adjacent"] = "clique"
    """For `entropy`: which sentences of a document's graph are linked, all or neighbours."""
    entropy: Literal["distribution", "released"] = "distribution"
    """For `entropy`: FedLCC's Eq. 15 as it is written, or the number that its authors' code computes."""

    def absolute(self, folder: Path, data: Path) -> Self:
        """With `file` as an absolute path, if there is one."""
        return self if self.file is None else self.model_copy(update={"file": folder / self.file})

    @field_validator("kind")
    @classmethod
    def _kind_is_known(cls, kind: str) -> str:
        registry("fedrel.partitions").find(kind)
        return kind


class Training(Section):
    """Local training, and how the rounds go."""

    rounds: int = Field(50, ge=1)
    """At most so many rounds; `evaluation.patience` may end a run earlier."""
    fraction: float = Field(0.1, gt=0, le=1)
    """C, the share of sites that are active in a round."""
    epochs: int = Field(3, ge=1)
    """E, local epochs."""
    batch_size: int = Field(32, ge=1)
    """B, bags (Lazy MIL: sentences) a local batch."""
    learning_rate: float = Field(0.1, gt=0)
    """Of the first round."""
    learning_rate_decay: float = Field(0.01, ge=0, lt=1)
    """The learning rate of round q, from 0, is learning_rate * (1 - learning_rate_decay)^q."""
    weight_decay: float = Field(1e-5, ge=0)
    """Of all weights."""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """`sgd`: plain SGD; `adamw`: begins anew at each site and round."""
    clip: float | None = Field(None, gt=0)
    """The largest norm of a step's gradient; a larger one is scaled down to it."""
    warmup: float = Field(0.0, ge=0, le=1)
    """The share of a round's local steps over which the learning rate rises from 0."""
    device: str = "cpu"
    """A torch device."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of a transformer's matrix products; weights, optimiser, loss, norms and messages are float32. `auto`:
    bfloat16 where the processor has instructions for it and is faster by them, else float32."""

    def learning_rate_in(self, round_: int) -> float:
        """The learning rate of a round, counted from 1."""
        return self.learning_rate * (1 - self.learning_rate_decay) ** (round_ - 1)


_METRICS = {
    "ranking": ("auc", "auc_2000", "p_mean", "max_f1"),
    "classification": ("f1", "macro_f1", "accuracy"),
    "documents": ("f1", "ign_f1", "intra_f1", "inter_f1"),
}


class Evaluation(Section):
    """What is measured, and how the best round is chosen: always on dev."""

    task: Literal["ranking", "classification", "documents"] = "ranking"
    """`ranking`: facts about entity pairs by probability (distant supervision); `classification`: each sentence's
    likeliest relation; `documents`: the relations of each document's pairs."""
    every: int = Field(1, ge=1)
    """Rounds between evaluations; the last round is always evaluated."""
    metric: (
        Literal["auc", "auc_2000", "p_mean", "max_f1"]
        | Literal["f1", "macro_f1", "accuracy"]
        | Literal["ign_f1", "intra_f1", "inter_f1"]
        | None
    ) = None
    """What chooses the best round; where none is named, the first. Of a ranking: auc, auc_2000, p_mean or max_f1;
    of a classification: f1 (micro-F1 without `NA`), macro_f1 or accuracy; of documents: f1 (micro-F1), ign_f1
    (without what training gave away), intra_f1 or inter_f1 (pairs that some sentence mentions, or none does)."""
    target: float | None = Field(None, gt=0, le=1)
    """Report the rounds and bytes needed until the metric reaches this."""
    target_on: Literal["dev", "test"] = "dev"
    """Where the target is looked for. `test`, as in FedED's Table 8: the test set is evaluated with dev, for this
    report only; it chooses nothing."""
    patience: int | None = Field(None, ge=1)
    """Stop when the best round on dev is this many rounds ago."""

    @property
    def measure(self) -> str:
        """The metric, or the task's own where none is named."""
        return self.metric or _METRICS[self.task][0]

    @model_validator(mode="after")
    def _metric_of_task(self) -> Evaluation:
        own = _METRICS[self.task]
        if self.metric is not None and self.metric not in own:
            raise ValueError(f"metric {self.metric!r} is not of this task: choose {', '.join(own)}")
        return self


class EngineSection(Section):
    """How requests travel to the sites. It changes no result as long as every site answers."""

    kind: Literal["local", "workers", "flower-simulation", "flower"] = "workers"
    """`local`: one process; `workers`: several; `flower-simulation`: Flower's virtual nodes on this machine;
    `flower`: real sites."""
    workers: int | None = Field(None, ge=1)
    """Processes; none means one for each core."""
    deadline: float = Field(3600.0, gt=0)
    """Of `flower`: seconds that sites have to answer a request. A site that is later is left out of the round."""
    min_sites: int | None = Field(None, ge=1)
    """The fewest answers that make a round; none means one. Of `flower`, also how many sites must be there before
    the first round; none means all."""
    extra_sites: int = Field(0, ge=0)
    """Sites that are asked beyond those drawn, and used only in place of ones that fail."""


class ExtractorSection(Section):
    """The options of an extractor. Each kind of extractor has a section class of its own, in its own folder."""

    kind: str
    """The extractor's name, or `module:Class` of one that is not declared as a plug-in."""


def _extractor_section(kind: str) -> type[ExtractorSection]:
    found: type[ExtractorSection] = registry("fedrel.extractors").find(kind).section
    return found


def _extractor_names() -> list[str]:
    return list(registry("fedrel.extractors").all())


def _default_extractor() -> ExtractorSection:
    return _extractor_section("pcnn").model_validate({})


class Config(Section):
    """A whole experiment."""

    seed: int = Field(1, ge=0)
    """Of the partition, the first weights, the drawing of sites, shuffling and dropout."""
    method: str = "lazy-mil"
    """A method's name, or several joined by `+`."""
    methods: dict[str, dict[str, Any]] = {}
    """Options by method, used when it is chosen."""
    plugins: list[Path] = []
    """Python files with methods, readers, extractors or partitions of your own; imported before all else."""
    data: Annotated[
        WorldData | FileData | DocumentData,
        Kinds.of("corpus", {"world": WorldData, "files": FileData, "documents": DocumentData}),
    ] = WorldData()
    partition: PartitionSection = PartitionSection()
    extractor: Annotated[
        ExtractorSection, Kinds("kind", _extractor_section, _extractor_names, default="pcnn")
    ] = Field(default_factory=_default_extractor)
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    engine: EngineSection = EngineSection()
    sweep: dict[str, list[Any]] = {}
    """For `fedrel sweep`: the values to try, by key."""
    case_study: int = Field(3, ge=0)
    """How many triples the report follows through training, sentence by sentence."""

    @model_validator(mode="after")
    def _documents_go_together(self) -> Config:
        unit = registry("fedrel.extractors").find(self.extractor.kind).unit
        chosen = {
            'data.corpus = "documents"': self.data.corpus == "documents",
            'extractor.kind = "document"': unit == "documents",
            'evaluation.task = "documents"': self.evaluation.task == "documents",
        }
        if any(chosen.values()) and not all(chosen.values()):
            missing = ", ".join(choice for choice, made in chosen.items() if not made)
            raise ValueError(f"documents need their own data, extractor and task: set {missing}")
        return self

    @model_validator(mode="after")
    def _partition_fits(self) -> Config:
        kinds = registry("fedrel.partitions")
        if self.data.unit not in kinds.find(self.partition.kind).units:
            fitting = [repr(name) for name, kind in kinds.all().items() if self.data.unit in kind.units]
            problem = f"partition.kind {self.partition.kind!r} cannot divide {self.data.unit}"
            raise ValueError(f"{problem}: choose {', '.join(fitting[:-1])} or {fitting[-1]}")
        return self

    def absolute(self, folder: Path, data: Path) -> Self:
        """With absolute paths: those of data files start from `data`, all others from `folder`."""
        plugins = [folder / file for file in self.plugins]
        return super().absolute(folder, data).model_copy(update={"plugins": plugins})

    def with_settings(self, settings: Settings) -> Config:
        """The config with other values of some keys: `["training.rounds=3"]` or `{"training.rounds": 3}`."""
        tree = self.model_dump(mode="json", exclude_none=True)
        apply_settings(tree, settings)
        return check(Config, tree, "config")

    def to_toml(self) -> str:
        """The config as a TOML file that reads back as itself."""
        import tomli_w

        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def shapes_result(self) -> dict[str, Any]:
        """What a checkpoint must agree on: all but the engine, how long the run goes on, and plug-ins' paths.

        A run may also go on in another precision, on another machine; `run` says so.
        """
        tree = self.model_dump(mode="json", exclude={"engine", "sweep", "plugins"})
        del tree["training"]["rounds"], tree["training"]["precision"], tree["evaluation"]["patience"]
        if self.evaluation.target_on == "dev":  # as in checkpoints from before this key
            del tree["evaluation"]["target_on"]
        return tree

    def digest(self) -> str:
        """A short name for `shapes_result`, the same on every machine."""
        return hashlib.sha256(json.dumps(self.shapes_result(), sort_keys=True).encode()).hexdigest()[:32]
