"""Messages: the only things that sites and coordinator send each other, and the checks on each of them.

A message is a frozen dataclass of numbers and arrays. Each field declares its dtype, shape and range. A message
travels as plain arrays by name. The receiver builds it again with `unpack`, which refuses what does not fit the
declaration: nothing that comes from outside is used before that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Self, get_type_hints

import numpy as np
import numpy.typing as npt

from fedrel.tensors.weights import Rows, Shapes, Tensors, Weights

Arrays = Mapping[str, npt.NDArray[Any]]


LARGEST = 1e6  # no working model has a weight or a loss near it; much larger ones overflow when used
MOST = 10**12  # sentences: no site has so many, and the sum over sites is still exact


class RefusedError(Exception):
    """A message, or a request, that is refused, with the reason."""


class UnclaimedError(RefusedError):
    """Winners that a site did not claim in this round, or that would single out a sentence."""


class CohortError(RefusedError):
    """A secure sum over fewer sites than a site demands."""

    def __init__(self, reason: str, demanded: int) -> None:
        super().__init__(reason)
        self.number = demanded


class PeerError(RefusedError):
    """What a request says of another site is not what that site has signed."""

    def __init__(self, reason: str, site: int) -> None:
        super().__init__(reason)
        self.number = site


@dataclass(frozen=True, slots=True)
class Array:
    """A field's declaration: dtype, shape and range. A dimension is a number, or a name for a size."""

    dtype: str
    shape: tuple[str | int, ...] = ()
    low: float | None = None
    high: float | None = None

    def check(self, name: str, array: npt.NDArray[Any], sizes: dict[str, int]) -> None:
        """`RefusedError` for an array that does not fit; `sizes` collects the sizes of the named dimensions."""
        if array.dtype != _numpy_type(self.dtype):
            raise RefusedError(f"{name} is {array.dtype}, expected {self.dtype}")
        if array.ndim != len(self.shape):
            raise RefusedError(f"{name} has {array.ndim} dimensions, expected {len(self.shape)}")
        for found, expected in zip(array.shape, self.shape, strict=True):
            size = sizes.setdefault(expected, found) if isinstance(expected, str) else expected
            if found != size:
                raise RefusedError(f"{name} has shape {array.shape}, expected {size} along {expected}")
        if not array.size:
            return
        # Either is NaN if any value is.
        least, most = (array.min().item(), array.max().item()) if array.ndim else 2 * (array.item(),)
        if not (math.isfinite(least) and math.isfinite(most)):
            raise RefusedError(f"{name} holds a value that is not finite")
        if self.low is not None and least < self.low:
            raise RefusedError(f"{name} holds {least}, below {self.low}")
        if self.high is not None and most > self.high:
            raise RefusedError(f"{name} holds {most}, above {self.high}")


@dataclass(frozen=True, slots=True)
class ModelTensors:
    """A field that holds the model's tensors by name; `rows` allows row-sparse ones."""

    rows: bool = False

    def pack(self, tensors: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Flatten to plain arrays."""
        flat: dict[str, npt.NDArray[Any]] = {}
        for name, tensor in tensors.items():
            if isinstance(tensor, Rows):
                flat[f"{name}/index"] = tensor.index
                flat[f"{name}/values"] = tensor.values
                flat[f"{name}/rest"] = np.asarray(tensor.rest, dtype=np.float64)
            else:
                flat[name] = tensor
        return flat

    def unpack(self, flat: Arrays, shapes: Shapes) -> Tensors:
        """Build the tensors again; `RefusedError` for names, shapes, row numbers and values that do not fit."""
        left = dict(flat)
        tensors: dict[str, npt.NDArray[np.float32] | Rows] = {}
        for name, shape in shapes.items():
            if name in left:
                array = tensors[name] = left.pop(name)
                _of_weights(shape).check(name, array, {})
            elif self.rows and f"{name}/index" in left:
                tensors[name] = self._unpack_rows(name, left, shape)
            else:
                raise RefusedError(f"{name} is missing")
        if left:
            raise RefusedError(f"{min(left)} is not a tensor of the model")
        return tensors

    def _unpack_rows(self, name: str, left: dict[str, npt.NDArray[Any]], shape: tuple[int, ...]) -> Rows:
        sizes: dict[str, int] = {}
        found = {}
        for part, declaration in _of_rows(shape).items():
            if f"{name}/{part}" not in left:
                raise RefusedError(f"{name}/{part} is missing")
            found[part] = left.pop(f"{name}/{part}")
            declaration.check(f"{name}/{part}", found[part], sizes)
        if (found["index"][1:] <= found["index"][:-1]).any():
            raise RefusedError(f"{name}/index is not ascending")
        return Rows(found["index"], found["values"], float(found["rest"]))


@cache
def _numpy_type(name: str) -> np.dtype[Any]:
    return np.dtype(name)


@cache
def _of_weights(shape: tuple[str | int, ...]) -> Array:
    return Array("float32", shape, low=-LARGEST, high=LARGEST)


@cache
def _of_rows(shape: tuple[int, ...]) -> Mapping[str, Array]:
    return {
        "index": Array("int32", ("rows",), low=0, high=shape[0] - 1),
        "values": _of_weights(("rows", *shape[1:])),
        "rest": Array("float64", (), low=0, high=1),
    }


class Message:
    """The base of all messages; subclasses are frozen dataclasses."""

    # Up, where training is noised: True if all that a message tells follows from that and from public counts. Each
    # class says it for itself.
    covered_by_noise: ClassVar[bool] = False

    @classmethod
    @cache
    def declared(cls) -> Mapping[str, Array | ModelTensors]:
        """The declaration of each field, from its annotation."""
        hints = get_type_hints(cls, include_extras=True)
        return {field.name: hints[field.name].__metadata__[0] for field in fields(cls)}  # type: ignore[arg-type]

    def pack(self) -> dict[str, npt.NDArray[Any]]:
        """The message as plain arrays by name: just this is sent."""
        flat: dict[str, npt.NDArray[Any]] = {}
        for name, declaration in self.declared().items():
            value = getattr(self, name)
            if isinstance(declaration, ModelTensors):
                flat |= {f"{name}/{key}": array for key, array in declaration.pack(value).items()}
            else:
                flat[name] = np.asarray(value, dtype=declaration.dtype)
        return flat

    @classmethod
    def unpack(cls, arrays: Arrays, shapes: Shapes) -> Self:
        """Build the message again from what arrived; `RefusedError` with the reason if it does not fit."""
        left = dict(arrays)
        values: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for name, declaration in cls.declared().items():
            if isinstance(declaration, ModelTensors):
                prefix = f"{name}/"
                flat = {key.removeprefix(prefix): left.pop(key) for key in arrays if key.startswith(prefix)}
                values[name] = declaration.unpack(flat, shapes)
            elif name in left:
                array = left.pop(name)
                declaration.check(name, array, sizes)
                values[name] = array if declaration.shape else array.item()
            else:
                raise RefusedError(f"{name} is missing")
        if left:
            raise RefusedError(f"{min(left)} is not a field of {cls.__name__}")
        return cls(**values)


def payload(arrays: Arrays) -> int:
    """The bytes of the numbers themselves: what a run counts as sent, the same on every engine."""
    return sum(array.nbytes for array in arrays.values())


def hash_arrays(whole: Any, arrays: Arrays) -> None:
    """Let a hash take in arrays: name, dtype, shape and bytes of each, in the order of their names."""
    for name, array in sorted(arrays.items()):
        whole.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        whole.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@dataclass(frozen=True, slots=True)
class Model(Message):
    """Down: the global weights."""

    weights: Annotated[Weights, ModelTensors()]
    """All trained weights."""


@dataclass(frozen=True, slots=True)
class Update(Message):
    """Up: a site's weights after local training, the number of examples, and its mean training loss."""

    covered_by_noise = True

    weights: Annotated[Tensors, ModelTensors(rows=True)]
    """All trained weights; of word tables only the rows that changed, and the factor of all others."""
    examples: Annotated[int, Array("int64", low=1, high=MOST)]
    """How many sentences or documents the site trained on."""
    loss: Annotated[float, Array("float64", low=-LARGEST, high=LARGEST)]
    """The mean training loss."""

    @property
    def sites(self) -> float:
        """How many sites' training it comes from."""
        return 1


UNVOUCHED = "the global weights are not made of updates that sites vouch for"
HOLDINGS = "census"  # the phase in which a site says what it holds; sites in use know it by this name


@dataclass(frozen=True, slots=True)
class Holdings(Message):
    """Up: how many sentences a site holds."""

    sentences: Annotated[int, Array("int64", low=0, high=MOST)]
    """How many training sentences or documents."""
