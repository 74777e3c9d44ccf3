"""An experiment between real sites: a config as always, and a `[shared]` table for what all must agree on.

The sites' text is nowhere in it. What would need it in one place is refused here, before anything is published.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedrel.config.check import Section, Settings, apply_settings, check, read_toml
from fedrel.config.load import data_folder
from fedrel.config.schema import Config
from fedrel.data.readers import READERS
from fedrel.errors import UserError, nearest
from fedrel.extractors.registry import extractor_kind
from fedrel.methods.registry import method, methods

AWAY = {"corpus": "documents", "train": ["at the sites"], "test": ["at the coordinator"]}
"""What `[data]` says in an experiment about documents: that they are, and not where."""


class Reading(Section):
    """How every site reads its own files, so that the same text becomes the same numbers."""

    na_rate: float = Field(0.1, ge=0, le=1)
    """Of raw text: the share of the unrelated pairs that are kept as `NA`."""
    na_seed: int = 0
    """Chooses which."""
    pair_types: tuple[tuple[str, str], ...] | None = None
    """Of documents in PubTator or DocRED: the types of head and tail that make a pair; without it, all do."""
    directions: Literal["both", "once"] = "both"
    """Of PubTator: whether two entities that could stand either way round are asked about both ways."""


class Shared(Reading):
    """What all sites must agree on, and the coordinator's own labelled text.

    Paths are relative to FEDREL_DATA or the file's own folder, as in every config.
    """

    knowledge_base: Path | None = None
    """A TSV of facts, for sites that align raw text; published."""
    relations: Path | None = None
    """The relation map; without one, the knowledge base's relations by name, or the format's own."""
    validation: tuple[Path, ...] = ()
    """Labelled sentences that every site gets to read (FedED's D_v); published."""
    dev: tuple[Path, ...] = Field(min_length=1)
    """The coordinator's own, to choose the best round by."""
    test: tuple[Path, ...] = Field(min_length=1)
    """The coordinator's own, to measure the result on."""
    format: str = "jsonl"
    """Of the three above."""

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
    """Read an experiment file; what may not run between real sites is refused."""
    tree = read_toml(path, Config)
    apply_settings(tree, settings)
    if "shared" not in tree:
        hint = "add a [shared] table: docs/deployment.md has one to begin with"
        raise UserError("says nothing of what the sites share", file=path, hint=hint)
    shared = check(_SharedPart, {"shared": tree.pop("shared")}, path).shared
    for section in ("data", "partition"):
        if section in tree:
            problem = f"[{section}] describes text that is in one place"
            raise UserError(problem, file=path, hint="leave it out: each site has its own, in its site.toml")
    if "plugins" in tree:
        hint = "install the plug-in's package at the coordinator and at every site"
        raise UserError("files of plug-ins are for one machine", file=path, hint=hint)
    if _reads_documents(tree.get("extractor", {}), path):
        tree |= {"data": AWAY, "evaluation": {"task": "documents"} | tree.get("evaluation", {})}
    config = check(Config, tree, path).absolute(path.parent.absolute(), data_folder(path.parent))
    experiment = Experiment(_with_defaults(config), _absolute(shared, path.parent))
    _check(experiment, path)
    return experiment


def _reads_documents(extractor: Any, path: Path) -> bool:
    """Whether an `[extractor]` table, or the name in its place, is of a kind that reads documents."""
    name = extractor if isinstance(extractor, str) else extractor.get("kind", "pcnn")
    try:
        return extractor_kind(name).unit == "documents"
    except UserError as error:
        raise UserError(error.problem, file=path, hint=error.hint) from error


def sends_triple_numbers(config: Config) -> bool:
    """Whether sites name facts by their number in the published knowledge base, and so only those that it has."""
    return getattr(method(config.method, config.methods), "keyed_triples", None) is False


def _with_defaults(config: Config) -> Config:
    """Between real sites, what tells less is the default: keyed triples, and a word table that stays as it is."""
    known = methods()
    options = dict(config.methods)
    for part in config.method.split("+"):
        if part in known and "keyed_triples" in known[part].model_fields:
            options[part] = {"keyed_triples": True} | options.get(part, {})
    changes: dict[str, Any] = {"methods": options}
    section = config.extractor
    changes["extractor"] = extractor_kind(section.kind).between_sites(section)
    return config.model_copy(update=changes)


def _check(experiment: Experiment, path: Path) -> None:
    config, shared = experiment.config, experiment.shared
    if reason := method(config.method, config.methods).simulation_only():
        raise UserError(f"{config.method!r} is for simulation only: {reason}", file=path)
    known = {name: reader for name, reader in READERS.all().items() if reader.unit == config.data.unit}
    if shared.format not in known:
        problem = f"shared.format: no reader of {config.data.unit} is called {shared.format!r}"
        raise UserError(problem, file=path, hint=nearest(shared.format, known))
    own_relations = known[shared.format].relations
    if shared.knowledge_base is None and shared.relations is None and own_relations is None:
        problem = "nobody could say which relations there are"
        raise UserError(problem, file=path, hint="name shared.relations or shared.knowledge_base")
    if sends_triple_numbers(config):
        if shared.knowledge_base is None:
            problem = f"{config.method!r} names facts by their number in a knowledge base, and there is none"
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
