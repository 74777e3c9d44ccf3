"""What is recorded of a run: hashes of its weights and metrics, and a few numbers that hold on any processor.

Hashes depend on the processor and on the versions of the libraries, so they are kept by `signature()`. Numbers are
compared with a tolerance, so that a machine with another signature tests something, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from safetensors.numpy import load_file

from fedrel.files import read_sealed
from tests.golden.cases import CASES
from tests.golden.inputs import write_inputs
from tests.golden.runs import run_config, run_without_kernels

FILE = Path(__file__).parent / "golden.json"
RELATIVE, ABSOLUTE = 0.05, 0.03  # how far a loss or a metric may be from the expected one
FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16")  # of the processor, where code depends on them


class Hashes(TypedDict):
    """SHA-256 of what a run leaves."""

    weights: str  # the global weights of the last round
    best: str  # those of the best round on dev
    rounds: str  # metrics.jsonl
    result: str  # result.json


class Numbers(TypedDict):
    """What must be nearly the same on any processor; each has a value for every round."""

    active: list[list[int]]
    examples: list[int]
    loss: list[float]
    dev: list[float]


class Golden(TypedDict):
    """What `golden.json` holds."""

    expected: dict[str, Numbers]
    hashes: dict[str, dict[str, Hashes]]  # by signature, by case


def carry_out(name: str, engine: str, inputs: Path, out: Path) -> Path:
    """Run a case by an engine, with its input files in a folder; returns the run folder."""
    case = CASES[name]
    write_inputs(inputs, str(case.tree))
    run: Callable[[Mapping[str, Any], Path], None] = run_config if case.kernels else run_without_kernels
    run(case.config(inputs, engine), out)
    return out


def hashes(folder: Path) -> Hashes:
    """The hashes of a run folder."""
    last = sorted((folder / "checkpoint").glob("round-*.safetensors"))[-1]
    (best,) = (folder / "checkpoint").glob("best-*.safetensors")
    weights = {name: array for name, array in load_file(last).items() if name.startswith("weights/")}
    return Hashes(
        weights=_of_tensors({name.removeprefix("weights/"): array for name, array in weights.items()}),
        best=_of_tensors(load_file(best)),
        rounds=_of_json([_timeless(line) for line in _lines(folder)]),
        result=_of_json(_timeless(_result(folder))),
    )


def numbers(folder: Path) -> Numbers:
    """The numbers of a run folder, rounded."""
    lines = _lines(folder)
    (metric,) = _result(folder)["dev_metric"]
    return Numbers(
        active=[line["active"] for line in lines],
        examples=[line["examples"] for line in lines],
        loss=[round(line["loss"] or 0, 4) for line in lines],
        dev=[round(line["dev"][metric], 4) for line in lines],
    )


def differences(found: Numbers, expected: Numbers) -> list[str]:
    """In what two runs differ by more than processors do; empty if they do not."""
    said = [
        f"{key} is {found[key]}, expected {expected[key]}"
        for key in ("active", "examples")
        if found[key] != expected[key]
    ]
    for key in ("loss", "dev"):
        a, b = found[key], expected[key]
        if len(a) != len(b) or not np.allclose(a, b, rtol=RELATIVE, atol=ABSOLUTE):
            said.append(f"{key} is {a}, expected about {b}")
    return said


def signature() -> str:
    """The processor and the libraries that hashes depend on."""
    import torch

    without = os.environ.get("FEDREL_KERNELS") == "off"
    versions = [f"{name} {_version(name)}" for name in ("torch", "numpy", "transformers", "peft")]
    compiler = "without numba" if without else f"numba {_version('numba')}"
    vectors = torch.backends.cpu.get_cpu_capability()
    return ", ".join([_processor(), f"torch uses {vectors}", *versions, compiler])


def read_golden() -> Golden:
    """The recorded results."""
    golden: Golden = json.loads(FILE.read_text(encoding="utf-8"))
    return golden


def write_golden(golden: Golden) -> None:
    """Keep them, a case a line."""

    def block(cases: Mapping[str, Any], indent: str) -> str:
        lines = [f"{indent}  {json.dumps(name)}: {json.dumps(value)}" for name, value in cases.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"

    by_signature = [
        f"    {json.dumps(key)}: {block(cases, '    ')}" for key, cases in sorted(golden["hashes"].items())
    ]
    text = '{\n  "expected": ' + block(golden["expected"], "  ") + ',\n  "hashes": {\n'
    FILE.write_text(text + ",\n".join(by_signature) + "\n  }\n}\n", encoding="utf-8")


def _processor() -> str:
    """Vendor, flags and, where numba compiles for it, the name of the processor's kind."""
    about: dict[str, str] = {}
    if (file := Path("/proc/cpuinfo")).exists():
        for line in file.read_text(encoding="utf-8").split("\n\n")[0].splitlines():
            key, _, value = line.partition(":")
            about[key.strip()] = value.strip()
    flags = about.get("flags", "").split()
    parts = [
        platform.machine(),
        about.get("vendor_id", platform.processor()),
        *(f for f in FLAGS if f in flags),
    ]
    try:
        from llvmlite import binding
    except ImportError:
        return " ".join(parts)
    return " ".join([*parts, os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def _result(folder: Path) -> dict[str, Any]:
    """Without its checksum, which recorded hashes are older than."""
    return read_sealed(folder / "result.json", "a result", "")


def _timeless(value: Any) -> Any:
    """Without the entries that are times, and `at_sites`, which recorded hashes are older than."""
    if isinstance(value, dict):
        return {key: _timeless(one) for key, one in value.items() if key not in ("seconds", "at_sites")}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


def _of_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _of_tensors(tensors: Mapping[str, np.ndarray]) -> str:
    whole = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        whole.update(f"{name} {tensor.dtype.name} {tensor.shape}\n".encode())
        whole.update(np.ascontiguousarray(tensor).tobytes())
    return whole.hexdigest()
