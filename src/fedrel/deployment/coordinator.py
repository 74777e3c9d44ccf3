"""The coordinator's side of an experiment: publish it, prepare what is evaluated here, hand the run to Flower."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrel.config.schema import Config
from fedrel.data.load import Dataset
from fedrel.data.store import DEV, TEST, Progress
from fedrel.deployment.artefacts import Artefacts, agreed_part
from fedrel.deployment.experiment import AWAY, Experiment
from fedrel.deployment.folders import CONNECTION, CoordinatorFolder
from fedrel.deployment.publishing import publish
from fedrel.deployment.remote import Coordinator, save_coordinator, unseen
from fedrel.deployment.site_columns import Part, prepare_site_data, published_triples, read_columns
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.files import wait_until_left, write_text
from fedrel.runs.prepare import Preparation

PATIENCE = 60.0  # seconds, for a process of Flower's to notice that it is no longer wanted


def publish_experiment(
    folder: CoordinatorFolder, experiment: Experiment, progress: Progress | None = None
) -> Artefacts:
    """Write the artefacts for the sites, and the coordinator's own labelled text as columns."""
    held = unseen(folder.federation.sites)
    artefacts = publish(experiment, folder.artefacts)
    shutil.rmtree(folder.preparation, ignore_errors=True)
    shared, config = experiment.shared, experiment.config
    parts = [Part(DEV, shared.dev, shared.format), Part(TEST, shared.test, shared.format)]
    text = read_columns(parts, artefacts, folder.preparation / "corpus", progress)
    for name, split in (("dev", DEV), ("test", TEST)):
        if not len(text.rows(split)):
            raise UserError(f"shared.{name} has nothing to evaluate on", hint="check its files")
    own = prepare_site_data(text, held, artefacts, config, folder.preparation, progress)
    dataset = Dataset(text, np.zeros(0, np.int64), text.rows(DEV), text.rows(TEST))
    ready = Preparation(dataset, own)
    triples = len(published_triples(artefacts.knowledge_base))
    save_coordinator(folder.preparation, Coordinator(ready, triples, artefacts.fingerprints))
    return artefacts


def run_experiment(
    folder: CoordinatorFolder,
    experiment: Experiment,
    name: str,
    *,
    resume: bool,
    say: Callable[[str], None] = print,
) -> Path:
    """Train between the sites that are connected, and wait for the end; returns the run folder."""
    from fedrel.deployment.programs import interruptible, listens, write_connection
    from fedrel.deployment.submit import submit

    port = folder.federation.port
    check_published(folder, experiment)
    if not listens(port):
        problem = f"no coordinator listens on port {port} of this machine"
        raise UserError(problem, hint="run `fedrel coordinator start` first, in another terminal")
    out = folder.runs.absolute() / name
    request = {
        "config": asked(experiment, folder.federation.sites).model_dump(mode="json"),
        "coordinator": str(folder.path.absolute()),
        "out": str(out),
        "resume": resume,
    }
    file = folder.runs.absolute() / f"{name}.request.json"
    write_text(file, json.dumps(request, indent=1))
    write_connection(folder)
    # A coordinator that was killed may have left a process behind, which ends when it notices.
    wait_until_left(out, PATIENCE, say)
    try:
        with interruptible():
            submit(file, home=folder.flower.absolute(), connection=CONNECTION, say=say)
    except KeyboardInterrupt:
        wait_until_left(out, PATIENCE, say)
        raise
    except UserError:
        if listens(port):
            raise
        hint = "start it again, and go on with --resume"
        raise UserError("the coordinator has stopped", hint=hint) from None
    return out


def check_published(folder: CoordinatorFolder, experiment: Experiment) -> None:
    """Refuse an experiment that is not the one the sites were given."""
    if not (folder.preparation / "coordinator.json").exists():
        raise UserError("nothing was published", file=folder.path, hint="run `fedrel coordinator publish`")
    artefacts = Artefacts(folder.artefacts)
    pairs = {"": (agreed_part(experiment.config), agreed_part(artefacts.config))}
    pairs["shared."] = (experiment.shared.reading.model_dump(), artefacts.reading.model_dump())
    for prefix, (wanted, published) in pairs.items():
        if different := _different(wanted, published):
            problem = f"{prefix}{different} is not as it was published"
            hint = "run `fedrel coordinator publish` and give the artefacts to the sites again"
            raise UserError(problem, file=folder.artefacts, hint=hint)


def asked(experiment: Experiment, sites: list[str]) -> Config:
    """The config that the coordinator works and asks with: without a path to vectors or anybody's text."""
    section = experiment.config.extractor
    kind = extractor_kind(section.kind)
    config = experiment.config.model_copy(update={"extractor": kind.at_coordinator(section)})
    tree: dict[str, Any] = config.model_dump(mode="json", exclude={"data", "sweep"})
    if kind.unit == "documents":
        tree["data"] = AWAY
    tree["partition"] = {"sites": len(sites)}
    tree["engine"]["kind"] = "flower"
    tree["case_study"] = 0  # it would show sentences of training, which are not here
    return Config.model_validate(tree)


def _different(wanted: Mapping[str, Any], published: Mapping[str, Any]) -> str | None:
    """The first key whose values differ, dotted."""
    for key in dict.fromkeys((*wanted, *published)):
        one, other = wanted.get(key), published.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if inner := _different(one, other):
                return f"{key}.{inner}"
        elif one != other:
            return key
    return None
