"""The files that the configs read: made-up text, word vectors and a tiny encoder, the same on every machine.

All numbers are drawn by numpy, whose generators give the same numbers on every processor.
"""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np

PIECES = ("gene", "GENE", "DISEASE", "raises", "lowers", "the", "risk", "of", "level", "binding", "##ing")
SENTENCES = {
    1: "the @GENE$ level raises the risk of @DISEASE$",
    0: "@DISEASE$ and the level of @GENE$ binding",
}
# Frequent words of the built-in world; the words that are not here are unknown to a model with these vectors.
KNOWN = """
the of and in is was that with has to for on which as while stilmom it not from remained home had
drairkom came under town birthplace missed whether siv at native when up kept first by also piline
who peled lives about flostine listed grew compared between fellous born pail hostal palled koplos
if after roots talk resident do pounom nesine nisked zorkous naistom said same like given no klinted
house named open world prescribed priv long employed chosen painter seved be drew breath until
against employer klanic staral there see been an drinted asked disorder city flemous officials spent
years nobody some wontish brenuntulon childhood winded holler draws salary hous plirkine prorous
turned citizen plusted pondom nothing follows
"""
WORDS = ("the", "risk", "of", "level", "gene", "raises", "binding", "ab", "cde", "x")


def write_inputs(folder: Path, named: str) -> None:
    """Write the files that a text names as `{inputs}/...`, where they are missing."""
    for part, write in PARTS.items():
        if f"{{inputs}}/{part}" in named and not (folder / part).exists():
            write(folder / part)


def write_encoder(folder: Path) -> None:
    """A BERT of two layers and 32 dimensions, with a tokeniser that knows every ASCII character."""
    import torch
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*string.ascii_letters, *string.digits]
    pieces = [*special, *letters, *(f"##{one}" for one in letters), *string.punctuation, *PIECES]
    tokeniser = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokeniser.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokeniser.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokeniser.decoder = decoders.WordPiece(cleanup=False)
    tokeniser.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(
        zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True)
    )
    PreTrainedTokenizerFast(tokenizer_object=tokeniser, **names).save_pretrained(folder)
    config = AutoConfig.for_model(
        "bert",
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        model = AutoModel.from_config(config)
    draw = np.random.default_rng(7)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.ndim > 1:  # biases are 0 and norms are 1 as they are
                weight.copy_(torch.from_numpy(draw.normal(0, 0.3, weight.shape).astype(np.float32)))
    model.save_pretrained(folder)


def write_sentences(folder: Path) -> None:
    """Sentences about genes and diseases in GAD's form: 160 to train on, 30 to test on."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(5)
    for name, count in (("train", 160), ("test", 30)):
        rows = []
        for number in range(count):
            label = int(draw.integers(2))
            said = label if draw.random() < 0.95 else 1 - label  # a few labels are wrong
            text = " ".join(["the risk of"] * int(draw.integers(3)) + [SENTENCES[said]])
            rows.append(f"{number}\t{text}\t{label}" if name == "test" else f"{text}\t{label}")
        header = ["index\tsentence\tlabel"] if name == "test" else []
        (folder / f"{name}.tsv").write_text("\n".join([*header, *rows]) + "\n", encoding="utf-8")


def write_documents(folder: Path) -> None:
    """Forty documents of two sentences in DocRED's form; an entity is named by its letter."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    made = [_document(number, draw) for number in range(40)]
    (folder / "pool.json").write_text(json.dumps(made), encoding="utf-8")


def _document(number: int, draw: np.random.Generator) -> dict[str, Any]:
    names = [chr(ord("A") + entity) for entity in range(draw.integers(2, 5, endpoint=True))]
    sentences = [draw.choice(WORDS, draw.integers(10, 20, endpoint=True)).tolist() for _ in range(2)]
    entities: list[list[dict[str, Any]]] = [[] for _ in names]
    for name, mentions in zip(names, entities, strict=True):
        for _ in range(draw.integers(1, 3, endpoint=True)):
            sentence = int(draw.integers(2))
            place = int(draw.integers(len(sentences[sentence])))
            if sentences[sentence][place] in WORDS:
                sentences[sentence][place] = name
                mention = {"name": name, "sent_id": sentence, "pos": [place, place + 1], "type": "T"}
                mentions.append(mention)
    entities = [mentions for mentions in entities if mentions]
    chances = {"r0": 0.8, "r1": 0.3}  # the first is so frequent that a model soon finds it
    labels = [
        {"h": head, "t": tail, "r": relation, "evidence": [0]}
        for head in range(len(entities))
        for tail in range(len(entities))
        for relation, chance in chances.items()
        if head != tail and draw.random() < (chance if head < tail else chance / 2)
    ]
    return {"title": f"d{number}", "sents": sentences, "vertexSet": entities, "labels": labels}


def write_vectors(file: Path) -> None:
    """Vectors of eight numbers for words of the built-in world, in GloVe's form."""
    draw = np.random.default_rng(3)
    lines = [" ".join([word, *(f"{number:.6f}" for number in draw.normal(size=8))]) for word in KNOWN.split()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


PARTS = {
    "encoder": write_encoder,
    "gad": write_sentences,
    "documents": write_documents,
    "vectors.txt": write_vectors,
}
