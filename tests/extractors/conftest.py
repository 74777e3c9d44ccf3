"""A tiny encoder with random weights, as Hugging Face's folders have them."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

WORDS = (
    "gene",
    "GENE",
    "DISEASE",
    "raises",
    "lowers",
    "the",
    "risk",
    "of",
    "level",
    "binding",
    "##ing",
)


def write_tokeniser(folder: Path) -> int:
    """A word-piece tokeniser that keeps case and knows every ASCII character; how many pieces it has."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*string.ascii_letters, *string.digits]
    pieces = [*special, *letters, *(f"##{one}" for one in letters), *string.punctuation, *WORDS]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokeniser = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokeniser.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokeniser.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokeniser.decoder = decoders.WordPiece(cleanup=False)
    tokeniser.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokeniser,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)
    return len(pieces)


def write_encoder(folder: Path, kind: str = "bert", **settings: object) -> Path:
    """An encoder of two layers and 32 dimensions with drawn weights, of some architecture."""
    from transformers import AutoConfig, AutoModel

    size = write_tokeniser(folder)
    names = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64} if kind == "distilbert" else {}
    config = AutoConfig.for_model(
        kind,
        **{
            "vocab_size": size,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "initializer_range": 0.3,
            **names,
            **settings,
        },
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        AutoModel.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The folder of a tiny encoder of an architecture, written once."""
    folders: dict[str, str] = {}

    def folder(kind: str) -> str:
        if kind not in folders:
            extra = {"embedding_size": 24} if kind == "electra" else {}
            folders[kind] = str(write_encoder(tmp_path_factory.mktemp(kind), kind, **extra))
        return folders[kind]

    return folder


@pytest.fixture(scope="session")
def tiny_bert(encoders: Callable[[str], str]) -> str:
    """The folder of a tiny BERT."""
    return encoders("bert")
