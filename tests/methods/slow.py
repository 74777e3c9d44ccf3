"""PCNN as its paper has it, one sentence at a time in float64: what slow versions of methods train."""

from __future__ import annotations

import torch


def slow_logits(weights, corpus, lookup, row, reach):
    """Eq. 1 for one sentence, position by position, in float64."""
    words = lookup[corpus.tokens[corpus.starts[row] : corpus.starts[row + 1]]]
    head, tail = int(corpus.head[row]), int(corpus.tail[row])
    tokens = []
    for i, word in enumerate(words):
        near = [min(max(i - at, -reach), reach) + reach for at in (head, tail)]
        tokens.append(
            torch.cat(
                [
                    weights["words.weight"][word],
                    weights["head_positions"][near[0]],
                    weights["tail_positions"][near[1]],
                ]
            )
        )
    gap = torch.zeros_like(tokens[0])
    padded = [gap, *tokens, gap]
    convolved = [
        weights["filters"] @ torch.cat(padded[i : i + 3]) + weights["filters_bias"]
        for i in range(len(tokens))
    ]
    first, second = sorted((head, tail))
    pieces = [convolved[: first + 1], convolved[first + 1 : second + 1], convolved[second + 1 :]]
    zero = torch.zeros_like(convolved[0])
    vector = torch.cat([torch.stack(piece).amax(0).relu() if piece else zero for piece in pieces])
    return weights["classifier.weight"] @ vector + weights["classifier.bias"]
