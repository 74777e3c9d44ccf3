"""The judged sets as text of the part of NYT10, and a training set with them in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from fedrel.config.schema import Config
from fedrel.config.sources import data_folder
from fedrel.data.load import dataset
from fedrel.data.problems import Problems
from fedrel.data.readers import reader
from fedrel.data.relations import NA
from fedrel.data.sentences import Instance, Mention, SentenceCorpus

SETS = {
    "NYT, 520 sentences": ("judged-tokens", "nyt_noise_sent.json.xz"),
    "NYT, by relation": ("judged-lines", "nyt_sentential_byrelation.txt.xz"),
    "Google, degrees": ("judged-snippets", "google_education_degree.json.xz"),
}
DEGREES = "Google, degrees"


def judged(name: str) -> list[Instance]:
    """The sentences of a set with a verdict on a relation, as NYT10 has them: lower case, names joined by `_`."""
    kind, file = SETS[name]
    read = reader(kind, Problems(skip=True)).read(data_folder(Path()) / "judged" / file)
    return [as_nyt10(one) for one in read if one.expresses is not None and one.relation != NA]


def as_nyt10(one: Instance) -> Instance:
    """A sentence as NYT10 writes it."""
    text = one.text.lower()
    if len(text) != len(one.text):  # a few characters, as İ, grow in lower case
        text = one.text
    for mention in (one.head, one.tail):
        joined = re.sub(r"\s", "_", text[mention.start : mention.end])
        text = text[: mention.start] + joined + text[mention.end :]
    head, tail = (
        replace(mention, name=text[mention.start : mention.end].replace("_", " "))
        for mention in (one.head, one.tail)
    )
    return replace(one, text=text, head=head, tail=tail, tokens=None)


def plain(text: str) -> str:
    """Letters and digits only, to see whether two corpora have the same sentence."""
    return re.sub(r"[^a-z0-9]+", "", text.lower().replace("-lrb-", "").replace("-rrb-", ""))


def mixed_config(config: Config, files: Path, method: str, seed: int, rounds: int) -> Config:
    """The preset on the files of `pool`."""
    data = {
        "corpus": "files",
        "format": "jsonl",
        "root": str(files),
        "train": ["train.jsonl"],
        "dev": ["dev.jsonl"],
        "test": ["test.jsonl"],
        "relations": "relations.json",
    }
    tree = config.model_dump(mode="json", exclude_none=True)
    tree["data"] = data
    tree["method"], tree["seed"] = method, seed
    tree["training"]["rounds"] = rounds
    return Config.model_validate(tree)


def pool(config: Config, folder: Path) -> tuple[Path, dict[str, list[Instance]], list[Instance]]:
    """Write the three parts as JSON lines; the judged sentences in training by set, and the snippets held out."""
    data = dataset(config.data)
    corpus = data.corpus.require(SentenceCorpus)
    parts = {
        name: [instance(corpus, row) for row in rows.tolist()]
        for name, rows in (("train", data.train), ("dev", data.dev), ("test", data.test))
    }
    ids = {one.name: one.id for part in parts.values() for row in part for one in (row.head, row.tail)}
    kept_apart = {names(row) for part in ("dev", "test") for row in parts[part]}
    mixed: dict[str, list[Instance]] = {}
    held: list[Instance] = []
    for name in SETS:
        own = [one for one in judged(name) if names(one) not in kept_apart]
        if name == DEGREES:
            own, held = own[::2], own[1::2]
        mixed[name] = [with_ids(one, ids) for one in own]
    told = [one for part in mixed.values() for one in part]
    said = {(plain(one.text), *names(one), one.relation) for one in told}
    parts["train"] = [
        row for row in parts["train"] if (plain(row.text), *names(row), row.relation) not in said
    ]
    parts["train"] += told
    folder.mkdir(parents=True, exist_ok=True)
    relations = dict.fromkeys([*corpus.relations, *(one.relation for one in told)])
    numbers = {relation: number for number, relation in enumerate(relations)}
    (folder / "relations.json").write_text(json.dumps(numbers))
    for name, rows in parts.items():
        reader("jsonl").write(rows, folder / f"{name}.jsonl")  # type: ignore[attr-defined]
    return folder, mixed, held


def names(one: Instance) -> tuple[str, str]:
    """The pair by its names: the judged sets have other ids."""
    return one.head.name, one.tail.name


def with_ids(one: Instance, ids: dict[str, str]) -> Instance:
    """With the ids that the part of NYT10 has for these names, so that sentences about one pair are one bag."""
    head, tail = (
        replace(mention, id=ids.get(mention.name, mention.name)) for mention in (one.head, one.tail)
    )
    return replace(one, head=head, tail=tail)


def instance(corpus: SentenceCorpus, row: int) -> Instance:
    """A row of a corpus as it was read."""
    head, tail = corpus.pairs[corpus.pair[row]].tolist()
    mentions = (
        Mention(corpus.entities[which], corpus.names[which], *span[row].tolist())
        for which, span in ((head, corpus.head_span), (tail, corpus.tail_span))
    )
    return Instance(corpus.text_of(row), *mentions, corpus.relations[int(corpus.relation[row])])
