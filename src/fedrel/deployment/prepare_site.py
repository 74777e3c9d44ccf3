"""Preparing a site: its own files read, aligned and numbered by what was published, as columns on its own disk.

The result is what a simulation's worker finds, for one site: the same numbers for relations, words and facts, the
same order of sentences and bags. Nothing leaves the site here.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from fedrel.config.schema import Config
from fedrel.data.sentences import SentenceCorpus
from fedrel.data.store import TRAIN, Corpus, Progress
from fedrel.deployment.artefacts import Artefacts
from fedrel.deployment.experiment import sends_triple_numbers
from fedrel.deployment.folders import SiteFolder
from fedrel.deployment.policy import NAME, DataTable, check_names, objections, read_policy
from fedrel.deployment.remote import alone
from fedrel.deployment.site_columns import Ints, Part, prepare_site_data, published_triples, read_columns
from fedrel.errors import UserError
from fedrel.extractors.registry import extractor_kind
from fedrel.files import write_text


@dataclass(frozen=True)
class Prepared:
    """What `fedrel site prepare` has to tell."""

    held: int  # sentences, or documents, to train on
    left_out: int  # for want of a number that all sites agree on
    objections: list[str]  # what in site.toml speaks against the experiment


def prepare_site(folder: SiteFolder, progress: Progress | None = None) -> Prepared:
    """Read the site's files against the published artefacts and leave its site_data in its folder."""
    folder.check()
    policy = read_policy(folder.path)
    check_names(policy, folder.path)
    artefacts = Artefacts(folder.artefacts)
    artefacts.check()
    config = _at_home(artefacts, policy.data)
    own = Part(TRAIN, own_files(folder.path, policy.data), policy.data.format, policy.data.source_field)
    folder.seal.unlink(missing_ok=True)
    shutil.rmtree(folder.site_data, ignore_errors=True)
    text = read_columns([own], artefacts, folder.site_data / "corpus", progress)
    rows, left_out = trainable(text, artefacts)
    if not len(rows):
        problem = "nothing to train on was found in the site's files"
        raise UserError(problem, file=folder.path / NAME, hint="check data.files and data.format")
    held = alone(rows, folder.number, folder.sites)
    prepare_site_data(text, held, artefacts, config, folder.site_data, progress).save(folder.site_data)
    write_text(folder.path / "config.json", config.model_dump_json())
    write_text(folder.seal, json.dumps(artefacts.fingerprints, indent=1))
    return Prepared(len(rows), left_out, objections(policy.allow, config))


def trainable(text: Corpus, artefacts: Artefacts) -> tuple[Ints, int]:
    """The rows to train on, once each, and how many are left out.

    Where facts go by number, those are left out that the published knowledge base does not have.
    """
    found = text.without_duplicates(text.rows(TRAIN))
    if not sends_triple_numbers(artefacts.config):
        return found, 0
    kept = found[
        text.require(SentenceCorpus).triple[found] < len(published_triples(artefacts.knowledge_base))
    ]
    return kept, len(found) - len(kept)


def own_files(folder: Path, data: DataTable) -> list[Path]:
    """The files that site.toml names, each once, in order."""
    found: dict[Path, None] = {}
    for pattern in data.files:
        path = folder / pattern
        try:
            patterned = [] if Path(pattern).is_absolute() else sorted(folder.glob(pattern))
        except ValueError as error:
            problem = f"data.files: {pattern!r} is no pattern: {error}"
            raise UserError(problem, file=folder / NAME, hint="as in text/*.txt or text/**/*.txt") from error
        matches = [path] if path.exists() else patterned
        if not matches:
            problem = f"data.files: nothing is called {pattern!r}"
            raise UserError(problem, file=folder / NAME, hint="paths are relative to the site's folder")
        found |= dict.fromkeys(matches)
    if not found:
        hint = 'name the site\'s text, as files = ["text/*.txt"]'
        raise UserError("data.files is empty", file=folder / NAME, hint=hint)
    return list(found)


def _at_home(artefacts: Artefacts, data: DataTable) -> Config:
    """The published experiment with the site's own copy of the encoder, which must be the same one."""
    config, section = artefacts.config, artefacts.config.extractor
    own = extractor_kind(section.kind).at_site(section, artefacts.folder, data.encoder)
    return config.model_copy(update={"extractor": own})
