"""An experiment as one TOML file: every choice a field, every field with its default and what it means."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedrel.config.check import Kinds, Section, Settings, apply_settings, check
from fedrel.config.config_sections import ColumnNames, DocumentData, FileData, PrivacySection, WorldData
from fedrel.config.plugins import registry

# By section, keys that came after version 0.1, with their defaults.
_LATER: dict[str, dict[str, Any]] = {
    "data": {"sites": [], "none_label": None, "on_error": "stop", "max_skipped": 0.01},
    "extractor": {"encoder_dropout": None},
    "training": {"head_learning_rate": None, "batches_of": "bags"},
    "evaluation": {"target_on": "dev", "tune_threshold": False},
}
_LATER_OF_SENTENCES = {"pair_types": None, "directions": "both", "columns": ColumnNames().model_dump()}


class PartitionSection(Section):
    """Who holds which training sentences, or documents."""

    kind: str = "iid"
    """`iid`: equal parts at random; `dirichlet`: skewed labels; `quantity`: skewed sizes; `shards`: a few labels
    a site; `source`: natural sites, as the data say; `file`: as a file says; `entropy`: documents alike in
    structural entropy. Or another partition's name. Documents: `iid`, `quantity`, `source` or `entropy`."""
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
    batches_of: Literal["bags", "sentences"] = "bags"
    """What a batch counts: bags, whose sentences stay together, or sentences, each by itself."""
    learning_rate: float = Field(0.1, gt=0)
    """Of the first round."""
    learning_rate_decay: float = Field(0.01, ge=0, lt=1)
    """The learning rate of round q, from 0, is learning_rate * (1 - learning_rate_decay)^q."""
    head_learning_rate: float | None = Field(None, gt=0)
    """Of the layers above a pretrained encoder, which are new; none: as that of the encoder. Needs `adamw`."""
    weight_decay: float = Field(1e-5, ge=0)
    """Of all weights."""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """`sgd`: plain SGD; `adamw`: begins anew at each site and round."""
    clip: float | None = Field(None, gt=0)
    """The largest norm of a step's gradient; a larger one is scaled down to it."""
    warmup: float = Field(0.0, ge=0, le=1)
    """The share of the whole run, all `rounds`, over which the learning rate rises from 0, step by step."""
    linear_decay: bool = False
    """After the warm-up, the learning rate falls step by step to 0 at the end of the last of all `rounds`."""
    device: str = "cpu"
    """A torch device."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of a transformer's matrix products; weights, optimiser, loss, norms and messages are float32. `auto`:
    bfloat16 where the processor has instructions for it and is faster by them, else float32."""

    def learning_rate_in(self, round_: int) -> float:
        """The learning rate of a round, counted from 1; where it follows the run, the highest one."""
        return self.learning_rate * (1 - self.learning_rate_decay) ** (round_ - 1)

    @property
    def follows_run(self) -> bool:
        """Whether the learning rate depends on how far the run is, and so on `rounds`."""
        return self.warmup > 0 or self.linear_decay

    def rate_factor(self, round_: int, step: int, steps: int) -> float:
        """What warm-up and linear decay make of the learning rate in one of a round's steps, both counted from 1.

        The warm-up ends with the full rate in its last step; the decay begins with it in the first one after that.
        """
        before, after = ((round_ - 1 + done / steps) / self.rounds for done in (step - 1, step))
        if after < self.warmup:
            return after / self.warmup
        return min(1.0, (1 - before) / (1 - self.warmup)) if self.linear_decay and self.warmup < 1 else 1.0

    @model_validator(mode="after")
    def _head_rate_needs_adamw(self) -> Training:
        if self.head_learning_rate is not None and self.optimiser != "adamw":
            raise ValueError('head_learning_rate needs optimiser = "adamw"')
        return self


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
    tune_threshold: bool = False
    """Of documents, and of sentences with one relation: a relation is found from the probability on that has the
    best F1 on dev. It is tuned in every evaluation, and dev and test are measured at it. False: from 0.5 on."""

    @property
    def measure(self) -> str:
        """The metric, or the task's own where none is named."""
        return self.metric or _METRICS[self.task][0]

    @model_validator(mode="after")
    def _metric_of_task(self) -> Evaluation:
        own = _METRICS[self.task]
        if self.metric is not None and self.metric not in own:
            raise ValueError(f"metric {self.metric!r} is not of this task: choose {', '.join(own)}")
        if self.tune_threshold and self.task == "ranking":
            raise ValueError("a ranking has no threshold to tune: leave out tune_threshold")
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


class AggregationSection(Section):
    """How the coordinator combines the sites' updates, and how far it trusts a single one."""

    rule: Literal[
        "mean", "median", "trimmed-mean", "krum", "multi-krum", "bulyan", "geometric-median", "agreeing"
    ] = "mean"
    """`mean`: weighted by examples or uniform, as the method says. `median` and `trimmed-mean`: of every
    coordinate; all sites count the same. `krum`: the one update nearest to its neighbours; `multi-krum`: the mean
    of all but the furthest; `bulyan`: `krum` again and again, then a trimmed mean. `geometric-median`: the point
    nearest to all; `agreeing`: the mean of the updates that go the way that most go."""
    liars: float = Field(0.2, ge=0, lt=0.5)
    """The share of a round's updates that may be lies: `trimmed-mean` cuts so many at either end, `krum`,
    `multi-krum` and `bulyan` choose so that so many do no harm."""
    norm_bound: float = Field(0.0, ge=0, allow_inf_nan=False)
    """An update longer than this many times the round's median is shortened to it; 0: none is."""
    share_cap: float = Field(0.0, ge=0, allow_inf_nan=False)
    """No site counts for more than this many times an equal share of the examples, nor wins more than that of Lazy
    MIL's triples; 0: no cap."""

    exclude_after: int = Field(0, ge=0)
    """With `rule = "agreeing"`: a site whose update was left out in this many rounds, and in more than half of its
    rounds, is not drawn any more; 0: all are."""

    @field_validator("exclude_after")
    @classmethod
    def _only_if_left_out(cls, after: int, info: ValidationInfo) -> int:
        if after and info.data.get("rule") != "agreeing":
            raise ValueError(
                'only the rule "agreeing" leaves out what disagrees: set rule = "agreeing", or 0'
            )
        return after

    @field_validator("share_cap")
    @classmethod
    def _at_least_equal(cls, cap: float) -> float:
        if 0 < cap < 1:
            raise ValueError("less than an equal share for every site is impossible: give 1 or more, or 0")
        return cap

    @property
    def is_plain(self) -> bool:
        """Whether updates are averaged as they come."""
        return self.rule == "mean" and not self.norm_bound and not self.share_cap


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
    aggregation: AggregationSection = AggregationSection()
    privacy: PrivacySection = PrivacySection()
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
        if self.data.unit == "documents" and self.training.batches_of == "sentences":
            raise ValueError("documents are not read sentence by sentence: leave out training.batches_of")
        return self

    @model_validator(mode="after")
    def _partition_fits(self) -> Config:
        kinds = registry("fedrel.partitions")
        if self.data.unit not in kinds.find(self.partition.kind).units:
            fitting = [repr(name) for name, kind in kinds.all().items() if self.data.unit in kind.units]
            problem = f"partition.kind {self.partition.kind!r} cannot divide {self.data.unit}"
            raise ValueError(f"{problem}: choose {', '.join(fitting[:-1])} or {fitting[-1]}")
        return self

    @model_validator(mode="after")
    def _head_rate_needs_an_encoder(self) -> Config:
        kind = registry("fedrel.extractors").find(self.extractor.kind)
        if self.training.head_learning_rate is not None and not kind.has_encoder:
            problem = f"extractor.kind {self.extractor.kind!r} has no pretrained encoder"
            raise ValueError(f"{problem}: leave out training.head_learning_rate")
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

        A run may also go on in another precision, on another machine; `run` says so. Where the learning rate
        follows the run, `rounds` counts too.
        Keys that earlier versions did not have count only where they are set: their checkpoints are still good.
        """
        tree = self.model_dump(mode="json", exclude={"engine", "sweep", "plugins"})
        tree["extractor"].pop("paper_encoder", None)  # says only what `encoder` may stand for
        training, evaluation = tree["training"], tree["evaluation"]
        del training["precision"], evaluation["patience"]
        if not self.training.follows_run:
            del training["rounds"], training["linear_decay"]
        data = _LATER["data"] | (_LATER_OF_SENTENCES if self.data.corpus == "files" else {})
        for section, later in (_LATER | {"data": data}).items():
            for key in later.keys() & tree[section].keys():
                if tree[section][key] == later[key]:
                    del tree[section][key]
        if self.aggregation.is_plain:
            del tree["aggregation"]
        elif not self.aggregation.exclude_after:
            del tree["aggregation"]["exclude_after"]
        del tree["privacy"]["vouched"]  # the weights are the same with it
        if not self.privacy.secure_sum:
            tree["privacy"] = {"dp": tree["privacy"]["dp"]}
        if self.privacy.dp is None:
            del tree["privacy"]["dp"]
        if not tree["privacy"]:
            del tree["privacy"]
        return tree

    def digest(self) -> str:
        """A short name for `shapes_result`, the same on every machine: paths below FEDREL_DATA count from there."""
        tree = self.shapes_result()
        if data := os.environ.get("FEDREL_DATA"):
            tree = _counted_from(Path(data).absolute(), tree)
        return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:32]


def _counted_from(folder: Path, value: Any) -> Any:
    """A config's tree in which the paths below a folder are relative to it."""
    if isinstance(value, dict):
        return {key: _counted_from(folder, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_counted_from(folder, inner) for inner in value]
    if isinstance(value, str) and Path(value).is_relative_to(folder):
        return Path(value).relative_to(folder).as_posix()
    return value
