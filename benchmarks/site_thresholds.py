"""F1 at each natural site with a threshold of its own: tuned on the site's dev part, measured on its test part.

A common model finds too little at a site that has more facts than the others, whatever it has learned. A site can
mend that by itself, without any training: this says how much of a loss is only that. For data of two classes.

    FEDREL_DATA=... python benchmarks/site_thresholds.py natural/ppi runs/ppi > site-thresholds.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from fedrel.config.sources import load_config
from fedrel.data.bags import singles, slices
from fedrel.data.load import dataset
from fedrel.data.sentences import SentenceCorpus
from fedrel.evaluation.tasks import best_threshold
from fedrel.extractors.heads import sentence_probabilities
from fedrel.extractors.saved import SavedModel, open_saved


def probabilities(saved: SavedModel, corpus: SentenceCorpus, rows: np.ndarray) -> np.ndarray:
    """The probability of the one relation for each sentence."""
    bags = singles(rows, np.zeros_like(rows), rows)
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        inputs = saved.trained.read(corpus, Path(scratch))
        parts = [
            sentence_probabilities(saved.trained.extractor, inputs.batch(one)) for one in slices(bags, 512)
        ]
    return np.concatenate([part.numpy()[:, 1] for part in parts])


def f1(guessed: np.ndarray, facts: np.ndarray) -> float:
    """F1 of the positive class."""
    return float(2 * (guessed & facts).sum() / max(guessed.sum() + facts.sum(), 1))


def main(config: str, comparison: Path) -> None:
    """Print, by method, seed and site: F1 at 0.5, the tuned threshold, and F1 there, as JSON."""
    data = dataset(load_config(config).data)
    corpus = data.corpus.require(SentenceCorpus)
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for result in sorted(comparison.glob("*/seed-*/result.json")):
        run = result.parent
        for number, site in enumerate(corpus.sources):
            own = run / "model" / site
            saved = open_saved(own if own.is_dir() else run / "model")
            dev, test = (rows[corpus.source[rows] == number] for rows in (data.dev, data.test))
            tuned = best_threshold(
                probabilities(saved, corpus, dev)[:, None], (corpus.relation[dev] == 1)[:, None]
            )
            guesses, facts = probabilities(saved, corpus, test), corpus.relation[test] == 1
            values = {
                "f1": f1(guesses > 0.5, facts),
                "threshold": tuned,
                "own_f1": f1(guesses >= tuned, facts),
            }
            found.setdefault(run.parent.name, {}).setdefault(run.name, {})[site] = values
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
