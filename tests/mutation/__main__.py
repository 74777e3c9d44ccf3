"""`python -m tests.mutation [--mutants N] [--seed S] [--module NAME] [--out FILE]`: run the tests on changed code.

cosmic-ray finds what can be changed. Its own runner starts a new process for each mutant; here a process that has
imported the libraries is forked instead, and the changed module is put in place of the real one in its memory. So
no file is touched, and a mutant takes seconds.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.mutation.selection import MODULES, tests_of
from tests.mutation.survivors import reason_for

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
LOOPS = 120  # processor seconds after which a mutant counts as killed, however busy the machine is
HANGS = 3600  # seconds; so does one that waits for ever
PRELOADED = (
    "torch",
    "numba",
    "pytest",
    "hypothesis",
    "safetensors.numpy",
    "transformers",
    "pydantic",
    "typer",
)
OURS = (
    "fedrel.data.load",
    "fedrel.extractors.pcnn.pcnn",
    "fedrel.extractors.dp_sgd",
    "fedrel.extractors.optimisers",
)  # none imports a mutant


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    module: str  # as `fedrel.methods.moon`
    operator: str
    occurrence: int
    line: int

    def __str__(self) -> str:
        return f"{self.module.removeprefix('fedrel.')}:{self.line} {self.operator.removeprefix('core/')}"


def main() -> int:
    """Returns 1 if fewer than the asked share are killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--mutants", type=int, default=300, help="how many are drawn of all modules (0: all)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--module", action="append", help="only this one, as methods.moon; may be repeated")
    parser.add_argument("--least", type=float, default=0.9, help="the share that must be killed")
    parser.add_argument(
        "--out", type=Path, help="write the result here; of a module that is not run, keep it"
    )
    parser.add_argument("--again", action="store_true", help="only those that --out lists as survivors")
    asked = parser.parse_args()
    chosen = [f"fedrel.{name}" for name in asked.module] if asked.module else MODULES
    mutants = [mutant for module in MODULES for mutant in mutants_of(module)]
    total = len(mutants)
    if 0 < asked.mutants < total:
        mutants = sorted(random.Random(asked.seed).sample(mutants, asked.mutants), key=str)
    print(f"{len(mutants)} of {total} mutants in {len(MODULES)} modules", flush=True)
    preload()
    done: dict[str, Any] = {}
    for module in chosen:
        mine = [mutant for mutant in mutants if mutant.module == module]
        drawn = len(mine)
        if asked.again:
            survived = {one["mutant"] for one in earlier(asked.out)[module]["survivors"]}
            mine = [mutant for mutant in mine if str(mutant) in survived]
            assert {str(mutant) for mutant in mine} == survived, (
                f"{module} has changed: run it without --again"
            )
        if mine and outcome(None, tests_of(module)) != "survived":
            print(f"the tests of {module} fail without a change: {' '.join(tests_of(module))}")
            return 2
        survivors = tried(mine)
        done[module] = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": commit(),
            "mutants": drawn,
            "killed": drawn - len(survivors),
            "survivors": survivors,
        }
        if asked.out:
            write_result(asked.out, done, {"mutants": total, "drawn": len(mutants), "seed": asked.seed})
    count = sum(one["mutants"] for one in done.values())
    killed = sum(one["killed"] for one in done.values())
    print(f"{killed} of {count} killed: {killed / max(count, 1):.1%}")
    return int(killed < asked.least * count)


def tried(mutants: Sequence[Mutant]) -> list[dict[str, str]]:
    """Run the tests of one module on each of its mutants; returns the survivors."""
    survivors = []
    for number, mutant in enumerate(mutants, 1):
        started = time.monotonic()
        found = outcome(mutant, tests_of(mutant.module))
        print(f"{number:4} {found:9} {time.monotonic() - started:5.1f} s  {mutant}", flush=True)
        if found == "survived":
            before, after = difference(mutant)
            reason = reason_for(mutant.module, after)
            survivors.append({"mutant": str(mutant), "before": before, "after": after, "reason": reason})
            print(f"          - {before}\n          + {after}\n          {reason}", flush=True)
    return survivors


def write_result(out: Path, done: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write what was found, over what an earlier call found of the same modules."""
    before = earlier(out)
    modules = {module: one for module in MODULES if (one := done.get(module, before.get(module)))}
    killed, tested = (sum(one[key] for one in modules.values()) for key in ("killed", "mutants"))
    command = "python -m tests.mutation --out results/mutation.json"
    result = {"command": command, **about, "tested": tested, "killed": killed, "modules": modules}
    out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def earlier(out: Path) -> dict[str, Any]:
    """What a result says of each module; nothing if there is none yet."""
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["modules"] if out.exists() else {}
    return found


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip()


def source_of(module: str) -> Path:
    return SRC / Path(*module.split(".")).with_suffix(".py")


def mutants_of(module: str) -> Iterator[Mutant]:
    """All changes that cosmic-ray's operators know, without those of annotations, which change nothing."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    code = source_of(module).read_text(encoding="utf-8")
    tree, unused = get_ast(code), lines_of_annotations(code)
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if kind.arguments():
            continue
        places = [place for node in ast_nodes(tree) for place in kind().mutation_positions(node)]
        for occurrence, (start, _) in enumerate(places):
            if not any(begin <= start < end for begin, end in unused):
                yield Mutant(module, name, occurrence, start[0])


def lines_of_annotations(code: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """From where to where the annotations of functions and their variables, and imports for types only, stand."""
    found: list[ast.expr | ast.stmt | None] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            given = node.args
            found += [
                one.annotation for one in (*given.args, *given.kwonlyargs, given.vararg, given.kwarg) if one
            ]
            found.append(node.returns)
            found += [one.annotation for one in ast.walk(node) if isinstance(one, ast.AnnAssign)]
        elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            found.append(node)
    return [
        ((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0)) for one in found if one
    ]


def changed_code(mutant: Mutant) -> str:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    code = source_of(mutant.module).read_text(encoding="utf-8")
    changed = mutate_code(code, get_operator(mutant.operator)(), mutant.occurrence)
    assert changed is not None and changed != code
    return str(changed)


def difference(mutant: Mutant) -> tuple[str, str]:
    """The lines that a mutant changes, as they were and as they are, without the white space around them."""
    before = source_of(mutant.module).read_text(encoding="utf-8").splitlines()
    after = changed_code(mutant).splitlines()
    first = next(n for n, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    same = next(n for n, (old, new) in enumerate(zip(before[::-1], after[::-1], strict=False)) if old != new)
    parts = (lines[first : max(len(lines) - same, first)] for lines in (before, after))
    old, new = (" ".join(line.strip() for line in part) for part in parts)
    return old, new


class Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from other code than its file has."""

    def __init__(self, module: str, code: str) -> None:
        self._module, self._code = module, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        origin = str(source_of(fullname))
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=origin)
        spec.has_location = True
        return spec

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._code, str(source_of(self._module)), "exec"), module.__dict__)


def preload() -> None:
    """Import what takes long, once."""
    for name in (*PRELOADED, *OURS):
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    os.environ["FEDREL_CACHE"] = tempfile.mkdtemp(prefix="mutation-cache-")
    early = [name for name in sys.modules if name in MODULES]
    assert not early, f"imported before it could be changed: {early}"


def outcome(mutant: Mutant | None, tests: Sequence[str]) -> str:
    """`killed` if a test fails, `survived` if none does, `hung` if they take too long."""
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (LOOPS, LOOPS))
        with tempfile.TemporaryFile("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            code = 1
            try:
                code = run_tests(mutant, tests)
            finally:
                os._exit(code)
    end = time.monotonic() + HANGS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def run_tests(mutant: Mutant | None, tests: Sequence[str]) -> int:
    import pytest

    if mutant is not None:
        sys.meta_path.insert(0, Replaced(mutant.module, changed_code(mutant)))
    os.chdir(ROOT)
    only = ["-m", "not slow", "-k", "not workers"]  # worker processes would import the real module
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *only, *tests]))


if __name__ == "__main__":
    sys.exit(main())
