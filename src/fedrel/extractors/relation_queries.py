"""The test rule of ATT as compiled loops: every relation has its own attention over a bag, and its own softmax.

Import this module only where `has_numba` says so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrel.tensors.compiling import kernel

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@kernel
def attention_probabilities(scores: Floats, bias: Floats, bags: Ints) -> Floats:
    """p_r = softmax(sum_i a_ir scores_i + bias)[r] of each bag, [B, R], with a_r the softmax of scores_ir over i.

    `scores` are x_i . w_r, [S, R], `bias` is [R]; bag b is the sentences bags[b] to bags[b + 1]. In a bag of one
    sentence all attention is on that, so that one softmax does for all relations.
    """
    count, relations = len(bags) - 1, scores.shape[1]
    result, logits = np.empty((count, relations), np.float32), np.empty(relations, np.float32)
    for bag in range(count):
        first, last = bags[bag], bags[bag + 1]
        for query in range(relations if last - first > 1 else 1):
            largest, total = np.float32(-np.inf), np.float32(0)
            for sentence in range(first, last):
                largest = max(largest, scores[sentence, query])
            for sentence in range(first, last):
                total += np.exp(scores[sentence, query] - largest)
            for relation in range(relations):
                logits[relation] = bias[relation]
            for sentence in range(first, last):
                share = np.exp(scores[sentence, query] - largest) / total
                for relation in range(relations):
                    logits[relation] += share * scores[sentence, relation]
            largest, total = np.float32(-np.inf), np.float32(0)
            for relation in range(relations):
                largest = max(largest, logits[relation])
            for relation in range(relations):
                logits[relation] = np.exp(logits[relation] - largest)
                total += logits[relation]
            for relation in range(query, query + 1 if last - first > 1 else relations):
                result[bag, relation] = logits[relation] / total
    return result
