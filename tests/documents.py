"""Made-up documents in DocRED's form, and a config that trains on them in seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedrel.config.check import check
from fedrel.config.schema import Config

WORDS = ("the", "risk", "of", "level", "gene", "raises", "binding", "ab", "cde", "x")


def documents(
    count: int, seed: int = 0, *, words: tuple[int, int] = (20, 40), entities: tuple[int, int] = (2, 5)
) -> list[dict[str, Any]]:
    """Documents of two sentences; entity e is named by its letter, and related to the next one now and then."""
    generator = np.random.default_rng(seed)
    made = []
    for number in range(count):
        names = [chr(ord("A") + entity) for entity in range(generator.integers(*entities, endpoint=True))]
        sentences = [
            generator.choice(WORDS, generator.integers(*words, endpoint=True) // 2).tolist() for _ in range(2)
        ]
        mentions: list[list[dict[str, Any]]] = [[] for _ in names]
        for entity, name in enumerate(names):
            for _ in range(generator.integers(1, 3, endpoint=True)):
                sentence = int(generator.integers(2))
                place = int(generator.integers(len(sentences[sentence])))
                if sentences[sentence][place] in WORDS:
                    sentences[sentence][place] = name * int(generator.integers(1, 3))
                    mentions[entity].append(
                        {"name": name, "sent_id": sentence, "pos": [place, place + 1], "type": "T"}
                    )
        mentions = [one for one in mentions if one]
        labels = [
            {"h": entity, "t": entity + 1, "r": f"r{relation}", "evidence": [0]}
            for entity in range(len(mentions) - 1)
            for relation in range(2)
            if generator.random() < 0.5
        ]
        made.append({"title": f"d{number}", "sents": sentences, "vertexSet": mentions, "labels": labels})
    return made


def write_documents(path: Path, made: list[dict[str, Any]]) -> Path:
    """As a DocRED file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


def tiny_documents(folder: Path, encoder: str, *settings: str, count: int = 40) -> Config:
    """An experiment of a few seconds on documents in `folder`, which are written there."""
    write_documents(folder / "pool.json", documents(count))
    config = check(
        Config,
        {
            "method": "fedavg",
            "data": {
                "corpus": "documents",
                "format": "docred",
                "root": str(folder),
                "pool": ["pool.json"],
                "fractions": [0.6, 0.2, 0.2],
            },
            "partition": {"kind": "iid", "sites": 3},
            "extractor": {"kind": "document", "encoder": encoder, "block_size": 8},
            "training": {
                "rounds": 2,
                "fraction": 1.0,
                "epochs": 1,
                "batch_size": 3,
                "learning_rate": 0.05,
                "learning_rate_decay": 0.0,
                "weight_decay": 0.0,
            },
            "evaluation": {"task": "documents"},
            "engine": {"kind": "local"},
        },
        "test",
    )
    return config.with_settings(settings)
