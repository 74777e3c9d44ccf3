"""An experiment between real sites: a config as for a simulation, and a `[shared]` table that all must agree on.

It does not say where the sites' text is. A config that would need the text in one place is refused here, before
anything is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedrel.config.check import Section, Settings, apply_settings, check, read_toml
from fedrel.config.schema import Config
from fedrel.config.sources import data_folder
from fedrel.data.readers import READERS
from fedrel.errors import UserError, nearest
from fedrel.extractors.registry import extractor_kind
from fedrel.methods.by_name import check_protection, check_vouched, method, methods

NORM_BOUND = 2.0  # between real sites, unless the experiment says otherwise
AWAY = {"corpus": "documents", "train": ["at the sites"], "test": ["at the coordinator"]}
"""What `[data]` says in an experiment about documents: that the data are documents, but not where they are."""


TELLS_LESS = {"keyed_triples": True, "levels": 16}
"""Options of methods that reveal less: what they are between real sites, unless an experiment says otherwise."""


class Reading(Section):
    """How every site reads its own files: the same text must become the same numbers everywhere."""

    na_rate: float = Field(0.1, ge=0, le=1)
    """For raw text: the share of the unrelated pairs that are kept as `NA`."""
    na_seed: int = 0
    """The seed that chooses these pairs."""
    pair_types: tuple[tuple[str, str], ...] | None = None
    """For PubTator and DocRED: the types of head and tail that make a pair; without it, all do."""
    directions: Literal["both", "once", "annotated"] = "both"
    """Whether two entities that fit in both directions make two pairs, or one."""


class Shared(Reading):
    """What all sites must agree on, and the coordinator's own labelled text.

    Paths are relative to FEDREL_DATA or the file's own folder, as in every config.
    """

    knowledge_base: Path | None = None
    """A TSV of facts, for sites that align raw text; published."""
    relations: Path | None = None
    """The relation map; without one, the knowledge base's relations by name, or the format's own."""
    validation: tuple[Path, ...] = ()
    """Labelled sentences that every site gets (FedED's D_v); published."""
    dev: tuple[Path, ...] = Field(min_length=1)
    """The coordinator's own files, to choose the best round with."""
    test: tuple[Path, ...] = Field(min_length=1)
    """The coordinator's own files, to measure the result on."""
    format: str = "jsonl"
    """The format of the three above."""

    @property
    def reading(self) -> Reading:
        """The part that sites need."""
        return Reading(**{name: getattr(self, name) for name in Reading.model_fields})

    @property
    def files(self) -> list[Path]:
        """Every file that it names."""
        named = (self.knowledge_base, self.relations, *self.validation, *self.dev, *self.test)
        return [path for path in named if path is not None]


class _SharedPart(Section):
    shared: Shared


@dataclass(frozen=True)
class Experiment:
    """A config that fits real sites, and what they share."""

    config: Config
    shared: Shared


def load_experiment(path: Path, settings: Settings = ()) -> Experiment:
    """Read an experiment file; `UserError` for what cannot run between real sites."""
    tree = read_toml(path, Config)
    apply_settings(tree, settings)
    if "shared" not in tree:
        hint = "add a [shared] table: docs/deployment.md has one to begin with"
        raise UserError("does not say what the sites share", file=path, hint=hint)
    shared = check(_SharedPart, {"shared": tree.pop("shared")}, path).shared
    for section in ("data", "partition"):
        if section in tree:
            problem = f"[{section}] describes text that is in one place"
            raise UserError(problem, file=path, hint="leave it out: each site has its own, in its site.toml")
    check_only_installed(tree, path)
    if _reads_documents(tree.get("extractor", {}), path):
        tree |= {"data": AWAY, "evaluation": {"task": "documents"} | tree.get("evaluation", {})}
    config = check(Config, tree, path).absolute(path.parent.absolute(), data_folder(path.parent))
    experiment = Experiment(_with_defaults(config), _absolute(shared, path.parent))
    _check(experiment, path)
    return experiment


def check_only_installed(tree: Mapping[str, Any], file: Path) -> None:
    """Fail if a config names plug-in files, or a class to import (`module:Class`).

    Nobody may choose what another machine imports: between real sites, methods and extractors have the name
    that fedrel or an installed package gave them.
    """
    extractor = tree.get("extractor", {})
    kind = extractor.get("kind", "") if isinstance(extractor, Mapping) else extractor
    named = [*str(tree.get("method", "")).split("+"), *tree.get("methods", {}), str(kind)]
    hint = "install the plug-in's package at the coordinator and at every site; it names what it adds"
    if tree.get("plugins"):
        raise UserError("plug-in files are for one machine", file=file, hint=hint)
    for name in named:
        if ":" in name:
            raise UserError(f"{name!r} names a class to import, on every machine", file=file, hint=hint)


def _reads_documents(extractor: Any, path: Path) -> bool:
    """Whether an `[extractor]` table, or the name that stands for one, is of a kind that reads documents."""
    name = extractor if isinstance(extractor, str) else extractor.get("kind", "pcnn")
    try:
        return extractor_kind(name).unit == "documents"
    except UserError as error:
        raise UserError(error.problem, file=path, hint=error.hint) from error


def sends_triple_numbers(config: Config) -> bool:
    """Whether sites send triples as their numbers in the published knowledge base: only those in it can be sent."""
    return getattr(method(config.method, config.methods), "keyed_triples", None) is False


def _with_defaults(config: Config) -> Config:
    """The config with the defaults for real sites, which reveal less (as keyed triples) and trust less."""
    known = methods()
    options = dict(config.methods)
    for part in config.method.split("+"):
        fields = known[part].model_fields if part in known else {}
        if less := {name: value for name, value in TELLS_LESS.items() if name in fields}:
            options[part] = less | options.get(part, {})
    changes: dict[str, Any] = {"methods": options}
    section = config.extractor
    changes["extractor"] = extractor_kind(section.kind).between_sites(section)
    single = not config.privacy.site_noise and not config.privacy.secure_sum
    if "norm_bound" not in config.aggregation.model_fields_set and single:
        chosen = method(config.method, config.methods)
        if chosen.several_sites and chosen.no_updates() is None:
            changes["aggregation"] = config.aggregation.model_copy(update={"norm_bound": NORM_BOUND})
    return config.model_copy(update=changes)


def _check(experiment: Experiment, path: Path) -> None:
    config, shared = experiment.config, experiment.shared
    if reason := method(config.method, config.methods).simulation_only():
        raise UserError(f"{config.method!r} is for simulation only: {reason}", file=path)
    check_protection(method(config.method, config.methods), config)
    if config.privacy.dp and config.privacy.dp.adaptive_clip is not None:
        problem = "privacy.dp.adaptive_clip: real sites could not tell how far the noise moves the weights"
        raise UserError(problem, file=path, hint="leave it out, and choose clip in a simulation")
    if config.aggregation.rule != "mean" and (reason := method(config.method, config.methods).only_mean()):
        problem = (
            f"aggregation.rule {config.aggregation.rule!r} cannot be used with {config.method}: {reason}"
        )
        raise UserError(problem, file=path, hint='aggregation.norm_bound works with rule = "mean"')
    try:
        check_vouched(method(config.method, config.methods), config)
    except UserError as error:
        raise UserError(error.problem, file=path, hint=error.hint) from error
    known = {name: reader for name, reader in READERS.all().items() if reader.unit == config.data.unit}
    if shared.format not in known:
        problem = f"shared.format: no reader of {config.data.unit} is called {shared.format!r}"
        raise UserError(problem, file=path, hint=nearest(shared.format, known))
    own_relations = known[shared.format].relations
    if shared.knowledge_base is None and shared.relations is None and own_relations is None:
        problem = "does not say which relations there are"
        raise UserError(problem, file=path, hint="name shared.relations or shared.knowledge_base")
    if sends_triple_numbers(config):
        if shared.knowledge_base is None:
            problem = f"{config.method!r} sends triples as numbers in a knowledge base, and there is none"
            hint = "name shared.knowledge_base, or set keyed_triples = true"
            raise UserError(problem, file=path, hint=hint)
        if shared.na_rate:
            problem = "pairs that the knowledge base does not list have no number that all sites agree on"
            hint = "set keyed_triples = true, or shared.na_rate = 0 and list NA pairs in the knowledge base"
            raise UserError(problem, file=path, hint=hint)
    for file in shared.files:
        if not file.exists():
            raise UserError("no such file", file=file, hint=f"check [shared] in {path}")


def _absolute(shared: Shared, folder: Path) -> Shared:
    base = data_folder(folder)
    one = {key: base / path for key in ("knowledge_base", "relations") if (path := getattr(shared, key))}
    several = {
        key: tuple(base / path for path in getattr(shared, key)) for key in ("validation", "dev", "test")
    }
    return shared.model_copy(update={**one, **several})
