"""How a corpus of documents lies on disk: the columns it has."""

from __future__ import annotations

from fedrel.data.layout import Column, Layout

FORMAT = 1  # of the folder; part of every cache key
TABLES = ("ids", "entities", "types", "names", "relations", "handled")

COLUMNS = {
    "split": Column("b"),
    "text": Column("B"),
    "text_starts": Column("q"),
    "sentence_starts": Column("q"),
    "token_starts": Column("q"),
    "tokens": Column("i", 2),
    "entity_starts": Column("q"),
    "entity_id": Column("i"),
    "entity_type": Column("i"),
    "mention_starts": Column("q"),
    "mention_chars": Column("i", 2),
    "mention_tokens": Column("i", 2),
    "mention_sentence": Column("i"),
    "mention_name": Column("i"),
    "pair_starts": Column("q"),
    "pairs": Column("i", 2),
    "left_out": Column("b"),
    "intra": Column("b"),
    "fact_starts": Column("q"),
    "fact_relation": Column("i"),
    "evidence_starts": Column("q"),
    "evidence": Column("i"),
    "handled_counts": Column("q"),
}
for _table in TABLES:
    COLUMNS |= {f"{_table}_text": Column("B"), f"{_table}_starts": Column("q")}

DOCUMENTS = Layout("documents", FORMAT, COLUMNS)
