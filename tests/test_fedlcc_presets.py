"""Every cell of FedLCC's Tables 3 to 7 and every curve of its Figs. 3 and 4 has a preset that says so and is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrel.config.config_sections import DocumentData
from fedrel.config.schema import Config
from fedrel.config.sources import config_path, load_config, presets
from fedrel.errors import UserError
from fedrel.extractors.document import DocumentSection
from fedrel.extractors.transformer.encoder_loading import encoder_folder

IID, ENTROPY = "iid", "entropy"
CORPORA = {"cdr": "Table 3", "chr": "Table 4", "gda": "Table 5"}

# What the paper shows: preset, how documents are shared out, fraction, batch size, epochs, and where it shows it.
CELLS = [
    *((name, IID, 1.0, 3, 1, table) for name, table in CORPORA.items()),
    *((f"{name}-entropy", ENTROPY, 1.0, 3, 1, table) for name, table in CORPORA.items()),
    *((f"{name}-entropy", ENTROPY, 1.0, 3, 1, "Fig. 3") for name in CORPORA),
    *((f"{name}-c{part}", IID, part, 3, 1, f"Fig. 4, C={part}") for name in CORPORA for part in (0.1, 0.3, 0.5)),
    *((name, IID, 1.0, 3, 1, "Fig. 4, C=1") for name in CORPORA),
    ("chr", IID, 1.0, 3, 1, "Table 6, B=3, E=1"),
    *(
        (f"chr-b{size}-e{epochs}", IID, 1.0, size, epochs, f"Table 6, B={size}, E={epochs}")
        for size in (3, 9, 15)
        for epochs in (1, 5)
        if (size, epochs) != (3, 1)
    ),
    ("docred", IID, 1.0, 3, 1, "Table 7"),
]  # fmt: skip


def opened(name: str) -> Config:
    return load_config(config_path(f"fedlcc/{name}"))


@pytest.mark.parametrize(("name", "kind", "fraction", "size", "epochs", "where"), CELLS)
def test_a_cell_has_its_preset(
    name: str, kind: str, fraction: float, size: int, epochs: int, where: str
) -> None:
    config = opened(name)
    assert where in presets()[f"fedlcc/{name}"]
    assert (config.partition.kind, config.partition.sites) == (kind, 10)
    training = config.training
    assert (training.fraction, training.batch_size, training.epochs) == (fraction, size, epochs)


@pytest.mark.parametrize("name", sorted({name for name, *_ in CELLS}))
def test_the_rest_is_table_2(name: str) -> None:
    config = opened(name)
    training = config.training
    assert (training.rounds, training.learning_rate, training.learning_rate_decay) == (50, 2.5e-5, 0.0)
    assert (training.optimiser, training.weight_decay) == ("adamw", 0.0)  # without weight decay, that is Adam
    assert config.method == "fedlcc" and config.methods["fedlcc"] == {"mu": 0.1, "tau": 0.5}
    assert isinstance(config.extractor, DocumentSection) and config.extractor.encoder == "minilm"
    assert config.evaluation.task == "documents"


def test_table_6_counts_rounds_to_an_f1_of_80() -> None:
    assert {opened(name).evaluation.target for name, *_ in CELLS if name.startswith("chr")} == {0.8}


def test_chr_is_asked_about_both_ways_and_the_pairs_of_table_1_are_a_choice() -> None:
    for name in ("chr", "chr-part", "chr-entropy"):
        data = opened(name).data
        assert isinstance(data, DocumentData)
        assert (data.directions, data.id_separator) == ("both", "")
    counts = opened("chr-counts").data
    assert isinstance(counts, DocumentData) and counts.directions == "annotated"
    assert "give labels away" in presets()["fedlcc/chr-counts"]


def test_the_recipe_is_atlops() -> None:
    config = opened("cdr")
    training = config.training
    assert (training.head_learning_rate, training.warmup, training.linear_decay) == (1e-4, 0.06, True)
    assert training.clip == 1 and config.evaluation.tune_threshold


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        ("feded/gad", "emilyalsentzer/Bio_ClinicalBERT"),
        ("feded/i2b2", "emilyalsentzer/Bio_ClinicalBERT"),
        ("fedcmc/cpr", "distilbert/distilbert-base-uncased"),
        ("fedlcc/chr", "allenai/scibert_scivocab_cased"),
        ("lazy_mil/nyt10-part-bert", "google-bert/bert-base-cased"),
        ("lazy_mil/mirgene-bert", "dmis-lab/biobert-v1.1"),
    ],
)
def test_the_papers_own_encoder_has_a_name(name: str, encoder: str) -> None:
    config = load_config(name, {"extractor.encoder": "paper"})
    assert config.extractor.model_dump()["encoder"] == encoder
    assert config.shapes_result() == load_config(name, {"extractor.encoder": encoder}).shapes_result()
    assert load_config(name).extractor.model_dump()["encoder"] == "minilm"


def test_without_a_paper_there_is_no_such_encoder() -> None:
    with pytest.raises(UserError, match='encoder = "paper" needs paper_encoder'):
        load_config("biored", {"extractor.encoder": "paper"})


def test_where_no_hub_is_reached_the_error_names_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise OSError("We have no connection")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    section = load_config("fedlcc/cdr", {"extractor.encoder": "paper"}).extractor
    assert isinstance(section, DocumentSection)
    encoder_folder.cache_clear()
    with pytest.raises(UserError, match=r"allenai/scibert_scivocab_cased.*no connection") as raised:
        encoder_folder(section.encoder)
    assert "minilm" in raised.value.hint


def test_every_preset_over_another_encoder_says_so() -> None:
    for name in presets():
        config = load_config(name)
        paper = config.extractor.model_dump().get("paper_encoder")
        if paper is not None:
            path: Path | None = config_path(name)
            said = ""
            while path is not None:  # a preset says it, or the one that it extends
                text = path.read_text(encoding="utf-8")
                said += text
                base = next((line for line in text.splitlines() if line.startswith("extends")), "")
                path = path.parent / base.split('"')[1] if base else None
            assert "Not as published" in said and "MiniLM" in said, name
