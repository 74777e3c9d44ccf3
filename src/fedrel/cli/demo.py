"""`fedrel demo`: six denoising methods on the built-in world, and new facts from text that was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree

from rich.markup import escape

from fedrel.api import compare
from fedrel.cli.progress import console, watching
from fedrel.config.schema import Config
from fedrel.config.sources import load_config
from fedrel.data.align import KnowledgeBase, align
from fedrel.data.load import world_config
from fedrel.data.world import World
from fedrel.extractors.saved import open_saved
from fedrel.inference.model import Model, Prediction
from fedrel.studio.tables import comparison_table

METHODS = ("none", "one", "ave", "att", "att-ra", "lazy-mil")
SHOWN = 3


def demo(out: Path, settings: Sequence[str], *, quiet: bool = False) -> None:
    """Compare the methods, then extract facts from new documents with Lazy MIL's model."""
    config = load_config("demo", settings)
    with watching(quiet=quiet) as watch:
        found = compare(config, METHODS, out, watch=watch)
    console.print(comparison_table(found.rows))
    console.print(f"report: {out / 'report.html'}\n", soft_wrap=True)
    facts = new_facts(config, out)
    console.print(f"{len(facts)} facts in fresh text that the training KB does not have; the most probable:")
    for fact in facts[:SHOWN]:
        best = fact.sentences[0]
        sentences = "1 sentence" if len(fact.sentences) == 1 else f"{len(fact.sentences)} sentences"
        console.print(
            f"  [bold]{escape(fact.head_name)}[/] — {escape(fact.relation)} — [bold]{escape(fact.tail_name)}[/]"
            f"  ({fact.probability:.2f}, {sentences})\n    “{escape(best.text)}”"
        )


def new_facts(config: Config, out: Path) -> list[Prediction]:
    """What the model finds in the test part's documents and the training knowledge base does not have."""
    assert config.data.corpus == "world"
    world = World(world_config(config.data))
    texts = out / "fresh-text"
    rmtree(texts, ignore_errors=True)
    world.documents(texts, split="test")
    known = KnowledgeBase()
    for head, relation, tail in world.facts("train"):
        known.add(head.id, list(head.names), relation, tail.id, list(tail.names))
    dictionary = KnowledgeBase()  # names to look for, with nothing said about them
    for split in ("train", "test"):
        for head, _, tail in world.facts(split):
            dictionary.add(head.id, list(head.names), "NA", tail.id, list(tail.names))
    model = Model(open_saved(out / "lazy-mil" / f"seed-{config.seed}" / "model"))
    found = model.predict(align(sorted(texts.glob("*.txt")), dictionary, na_rate=1.0, seed=0))
    return [fact for fact in found if (fact.head, fact.relation, fact.tail) not in known.triples]
