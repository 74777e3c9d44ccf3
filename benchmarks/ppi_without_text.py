"""How far one gets on PPI's five corpora without reading: always yes, and a classifier of lengths and counts.

A model of text must beat both on a site's test part before its score says anything about text there. The second
baseline sees of a passage how long it is, where the two proteins stand, and how many other proteins there are; it
is trained on the site's own training part, and its threshold is chosen on the site's own dev part.

    FEDREL_DATA=... python benchmarks/ppi_without_text.py > without-text.json
"""

from __future__ import annotations

import json

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedrel.config.sources import load_config
from fedrel.data.load import dataset
from fedrel.data.sentences import SentenceCorpus
from fedrel.evaluation.tasks import best_threshold


def features(corpus: SentenceCorpus, rows: np.ndarray) -> np.ndarray:
    """Length, the tokens before, between and after the two proteins, their order, and other proteins."""
    found = []
    other = list(corpus.words).index("protein")
    for row in rows:
        start, end = corpus.starts[row], corpus.starts[row + 1]
        tokens, (first, last) = corpus.tokens[start:end], sorted((corpus.head[row], corpus.tail[row]))
        among = [int((part == other).sum()) for part in (tokens, tokens[first:last])]
        order = float(corpus.head[row] < corpus.tail[row])
        found.append([len(tokens), first, last - first, len(tokens) - last, order, *among])
    return np.array(found, float)


def f1(guessed: np.ndarray, facts: np.ndarray) -> float:
    """F1 of the positive class."""
    return float(2 * (guessed & facts).sum() / max(guessed.sum() + facts.sum(), 1))


def main() -> None:
    """Print both baselines at each site as JSON."""
    data = dataset(load_config("natural/ppi").data)
    corpus = data.corpus.require(SentenceCorpus)
    report = {}
    for number, site in enumerate(corpus.sources):
        train, dev, test = (rows[corpus.source[rows] == number] for rows in (data.train, data.dev, data.test))
        gold = {
            name: corpus.relation[rows] == 1
            for name, rows in (("train", train), ("dev", dev), ("test", test))
        }
        model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced"))
        model.fit(features(corpus, train), gold["train"])
        threshold = best_threshold(model.predict_proba(features(corpus, dev))[:, 1:], gold["dev"][:, None])
        guessed = model.predict_proba(features(corpus, test))[:, 1] >= threshold
        report[site] = {
            "train": len(train),
            "dev": len(dev),
            "test": len(test),
            "positive": float(gold["test"].mean()),
            "always_yes_f1": f1(np.ones(len(test), bool), gold["test"]),
            "lengths_and_counts_f1": f1(guessed, gold["test"]),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
