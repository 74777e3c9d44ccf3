"""How long an epoch of documents takes, what the document extractor's head costs, and what scoring at once saves.

    python benchmarks/document.py [--seconds 60] [--wide] [--only epoch]

`epoch`: an epoch of CDR's 500 training documents, all of MiniLM's layers trained, three documents a batch. Packed
pieces in the precision that `auto` comes to, for one site on both cores (`two_cores`) and on one (`one_core`), take
turns with the way that is left for encoders of other architectures: texts of similar length, padded, by Hugging
Face's own layers in float32, on one core. That is how all encoders ran before. `two_cores_ratio` is for one site
that has the machine, which had one core of two before; `one_core_ratio` for several sites, one a core.

For all else, one process with one thread, as a worker of `fedrel run` has. The documents are CDR's and
Re-DocRED's, where FEDREL_DATA names the folder that has them, else made up with as many pieces, entities and pairs.

`pairs_ratio`: how many times as fast all pairs of Re-DocRED's documents are scored in one pass (Eq. 2 to 10, from
the encoder's states and attention) as in a loop over pairs. `head`, by corpus: how much longer a training step
(forward, backward, AdamW, three documents) takes than the same step of the encoder alone, which learns to make its
last states small. Both take turns, batch by batch. With `--wide` also for an encoder of BERT-base's size with drawn
weights, as FedLCC's paper uses one. MiniLM is so narrow that the bilinear matrices of Re-DocRED's 96 relations
alone are a third of its arithmetic: no limit is set for that. Times are the process's own, so that others on
the machine disturb them little.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel

from fedrel.config.schema import Training
from fedrel.data.bags import singles
from fedrel.data.load import load_files
from fedrel.extractors.document.document_pieces import DocumentBatch, DocumentInputs, tokenise
from fedrel.extractors.document.document_transformer import DocumentTransformer, Read, document_transformer
from fedrel.extractors.optimisers import Optimiser, optimiser
from fedrel.extractors.transformer.encoder import PaddedEncoder
from fedrel.extractors.transformer.encoder_loading import load_tokeniser
from fedrel.extractors.transformer.pretrained import seed_of
from fedrel.seeding import numpy_generator, torch_generator
from fedrel.tensors.machine import AUTO, PARTS, cores, resolve

FILES = {"cdr": ("eog", "cdr/eog/train_filter.data.xz"), "docred": ("docred", "redocred/dev_revised.json.xz")}
LIKE = {"cdr": (220, 7, 3, 1), "docred": (200, 20, 1, 96)}  # words, entities, mentions of each, relations
WORDS = ("the", "of", "patient", "level", "risk", "blood", "study", "drug", "dose", "rat")
LIMITS = {("minilm", "cdr"): 0.15, ("base", "cdr"): 0.15, ("base", "docred"): 0.15}
RATIO, EPOCH_RATIO = 5, 3
BATCH, DOCUMENTS = 3, 60
TRAINING = Training(optimiser="adamw", learning_rate=2.5e-5, learning_rate_decay=0.0, weight_decay=0.0)
BUSY = 0.7  # a load average that says so


def corpus(name: str, folder: Path, encoder: str) -> tuple[DocumentInputs, DocumentTransformer]:
    """Documents as pieces, and a new extractor for them."""
    format_, path = FILES[name]
    data = os.environ.get("FEDREL_DATA")
    if not data:
        format_, path = "docred", made_up(name, folder)
    found = load_files([(0, Path(data or "") / path)], format_)
    model = document_transformer(encoder, len(found.relations), torch_generator(1, "benchmark"))
    return tokenise(found, encoder), model


def made_up(name: str, folder: Path) -> str:
    """Documents as dense as a corpus's; where they are."""
    words, entities, mentions, relations = LIKE[name]
    random = numpy_generator(1, "made-up", name)
    documents: list[dict[str, Any]] = []
    for number in range(DOCUMENTS):
        text = random.choice(WORDS, words).tolist()
        places = random.permutation(words)[: entities * mentions].reshape(entities, mentions).tolist()
        vertices = [
            [{"name": text[at], "sent_id": 0, "pos": [at, at + 1], "type": "T"} for at in own]
            for own in places
        ]
        labels = [
            {"h": 0, "t": 1, "r": f"r{relation}", "evidence": []}
            for relation in range(relations)
            if not number
        ]
        documents.append({"title": str(number), "sents": [text], "vertexSet": vertices, "labels": labels})
    path = folder / f"{name}.json"
    path.write_text(json.dumps(documents))
    return str(path)


def batches(inputs: DocumentInputs, *, at_random: bool = False) -> list[DocumentBatch]:
    """A number of documents with pairs, at random, three at a time; unless `at_random`, those of like length."""
    rows = np.flatnonzero(np.diff(inputs.corpus.pair_starts))
    rows = numpy_generator(1, "documents").permutation(rows)[:DOCUMENTS]
    if not at_random:
        rows = rows[np.argsort(inputs.lengths(rows), kind="stable")]
    parts = [rows[begin : begin + BATCH] for begin in range(0, len(rows), BATCH)]
    parts = [parts[which] for which in numpy_generator(1, "order").permutation(len(parts))]
    return [inputs.batch(singles(part, part, part)) for part in parts]


def epoch_ratio(folder: Path) -> dict[str, float]:
    """Packed pieces against padded ones, each over the same documents; seconds are those of the whole corpus."""
    inputs, packed = corpus("cdr", folder, "minilm")
    _, padded = corpus("cdr", folder, "minilm")
    packed.compute_in(resolve(AUTO))
    padded.encoder = PaddedEncoder(padded.encoder.model)
    at_random, alike = batches(inputs, at_random=True), batches(inputs)
    ways = {
        "two_cores": (packed, at_random, PARTS),
        "one_core": (packed, at_random, 1),
        "padded": (padded, alike, 1),
    }
    generator, spent = torch_generator(1, "dropout"), Counter[str]()
    steps = {name: optimiser(model, TRAINING, 1, 1) for name, (model, _, _) in ways.items()}
    for number in range(-1, len(alike)):  # the first for warming up
        for name, (model, made, count) in ways.items():

            def loss(batch: DocumentBatch, model: DocumentTransformer = model) -> Tensor:
                reading = model.read("none", batch, generator)
                return model.criterion(reading.logits, reading.labels)

            begin = time.perf_counter()
            with cores(count):
                step(loss, made[number], steps[name])
            spent[name] += (time.perf_counter() - begin) * (number >= 0)
    whole = len(inputs.corpus) / sum(len(batch.rows) for batch in alike)
    return {
        "two_cores_ratio": spent["padded"] / spent["two_cores"],
        "one_core_ratio": spent["padded"] / spent["one_core"],
        **{f"{name}_seconds": whole * taken for name, taken in spent.items()},
    }


def head_share(name: str, folder: Path, encoder: str, seconds: float) -> dict[str, float]:
    """How much longer a training step takes with the head than without."""
    inputs, model = corpus(name, folder, encoder)
    steps = optimiser(model, TRAINING, 1, 1)
    generator = torch_generator(1, "dropout")

    def whole(batch: DocumentBatch) -> Tensor:
        reading = model.read("none", batch, generator)
        return model.criterion(reading.logits, reading.labels)

    def alone(batch: DocumentBatch) -> Tensor:
        return encoder_only(model, batch, generator).square().mean()

    spent: Counter[str] = Counter()
    made = batches(inputs)
    for batch in made[:2]:
        for loss in (whole, alone):  # for warming up
            step(loss, batch, steps)
    end, number = time.process_time() + seconds, 0
    while time.process_time() < end:
        batch = made[number % len(made)]
        order = ((whole, "whole"), (alone, "alone"))
        for loss, what in order if number % 2 else order[::-1]:
            spent[what] += step(loss, batch, steps)
        spent["documents"] += len(batch.rows)
        spent["pairs"] += len(batch.pairs)
        spent["pieces"] += sum(batch.lengths)
        number += 1
    return {
        "head": spent["whole"] / spent["alone"] - 1,
        "documents_per_second": spent["documents"] / spent["whole"],
        "encoder_documents_per_second": spent["documents"] / spent["alone"],
        "pairs_per_document": spent["pairs"] / spent["documents"],
        "pieces_per_document": spent["pieces"] / spent["documents"],
    }


def encoder_only(model: DocumentTransformer, batch: DocumentBatch, generator: torch.Generator) -> Tensor:
    """The last states of all pieces."""
    starts, seed = batch.starts.tolist(), seed_of(generator)
    states = model._enter(batch.words, starts, seed)
    return model.encoder.read(states, starts, torch.arange(len(states)), seed)


def step(loss: Callable[[DocumentBatch], Tensor], batch: DocumentBatch, steps: Optimiser) -> float:
    """The seconds of one training step."""
    begin = time.process_time()
    value = loss(batch)
    steps.zero_grad()
    value.backward()
    steps.step()
    return time.process_time() - begin


@torch.inference_mode()
def pair_ratio(folder: Path, seconds: float) -> dict[str, float]:
    """All pairs in one pass against a loop over them, from the same states and attention."""
    inputs, model = corpus("docred", folder, "minilm")
    made = [(batch, model.documents(batch)) for batch in batches(inputs)[:6]]
    for batch, read in made[:1]:
        found, expected = at_once(model, batch, read), one_by_one(model, batch, read)
        assert torch.allclose(found, expected, atol=1e-4), "the two ways disagree"
    spent: Counter[str] = Counter()
    end, number = time.process_time() + seconds, 0
    while time.process_time() < end:
        batch, read = made[number % len(made)]
        for way in (at_once, one_by_one):
            begin = time.process_time()
            way(model, batch, read)
            spent[way.__name__] += time.process_time() - begin
        spent["pairs"] += len(batch.pairs)
        number += 1
    return {
        "pairs_ratio": spent["one_by_one"] / spent["at_once"],
        "pairs_per_second": spent["pairs"] / spent["at_once"],
        "looped_pairs_per_second": spent["pairs"] / spent["one_by_one"],
    }


def at_once(model: DocumentTransformer, batch: DocumentBatch, read: Sequence[Read]) -> Tensor:
    """As the extractor does it."""
    return model.logits(*model.fuse(model.pairs(batch, read))).sigmoid()


def one_by_one(model: DocumentTransformer, batch: DocumentBatch, read: Sequence[Read]) -> Tensor:
    """The equations as they stand, for one pair after the other."""
    bounds, size = batch.bags.tolist(), model.block_size
    width = model.encoder.width
    above, below = model.context.weight.split(width)
    matrices = model.classifier.weight.view(-1, width // size, size, size)
    found = torch.empty_like(batch.labels)  # made first: thousands of small results would split the heap
    for number, states, attention in read:
        first = batch.entities[number]
        own = slice(batch.mentions[number], batch.mentions[number + 1])
        mentions, entity = states[batch.place[own]], batch.entity[own] - first
        for pair in range(bounds[number], bounds[number + 1]):
            head, tail = int(batch.head[pair]) - first, int(batch.tail[pair]) - first
            q = (attention[:, head] * attention[:, tail]).sum(0)
            c = (q / q.sum()) @ states
            subject, object_ = (mentions[entity == one].logsumexp(0) for one in (head, tail))
            z_s = torch.tanh(model.subject.weight @ subject + above @ c).view(-1, size)
            z_o = torch.tanh(model.object.weight @ object_ + below @ c).view(-1, size)
            found[pair] = torch.einsum("ka,rkab,kb->r", z_s, matrices, z_o) + model.classifier.bias
    return found.sigmoid()


def base_sized(folder: Path) -> str:
    """An encoder of BERT-base's size with MiniLM's tokeniser."""
    tokeniser = load_tokeniser("minilm")
    tokeniser.save_pretrained(folder)
    AutoModel.from_config(AutoConfig.for_model("bert", vocab_size=len(tokeniser))).save_pretrained(folder)
    return str(folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="about how long each part measures, in seconds of one core",
    )
    parser.add_argument("--wide", action="store_true", help="also with an encoder of BERT-base's size")
    parser.add_argument("--only", choices=["epoch"], help="measure only this")
    given = parser.parse_args()
    if (busy := os.getloadavg()[0]) > BUSY:
        print(f"the machine is busy (load {busy:.1f}): rates will be low, ratios less so", file=sys.stderr)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        result: dict[str, Any] = {"corpora": "real" if os.environ.get("FEDREL_DATA") else "made-up"}
        result["epoch"] = epoch_ratio(folder)
        if given.only != "epoch":
            result |= pair_ratio(folder, given.seconds)
            result["minilm"] = {name: head_share(name, folder, "minilm", given.seconds) for name in FILES}
        if given.wide:
            wide = base_sized(folder / "wide")
            result["base"] = {name: head_share(name, folder, wide, given.seconds) for name in FILES}
    missed = [
        f"{encoder} on {name}: the head takes {share:.0%} on top of the encoder, expected at most {limit:.0%}"
        for (encoder, name), limit in LIMITS.items()
        if encoder in result and (share := result[encoder][name]["head"]) > limit
    ]
    if (faster := result["epoch"]["two_cores_ratio"]) < EPOCH_RATIO:
        missed.append(f"an epoch is {faster:.1f} times as fast, expected {EPOCH_RATIO}")
    if result.get("pairs_ratio", RATIO) < RATIO:
        missed.append(f"one pass is {result['pairs_ratio']:.1f} times as fast, expected {RATIO}")
    for problem in missed:
        print(problem, file=sys.stderr)
    print(json.dumps(rounded(result)))
    return bool(missed)


def rounded(value: Any) -> Any:
    """Numbers to four places."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
