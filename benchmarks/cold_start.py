"""How long kernels take to compile, and whether whoever compiles them trains as fast as who loads them.

    python benchmarks/cold_start.py

With an empty cache, the parts that a first run needs (training and scoring) are compiled side by side, as `fedrel
run` does: `cold_start_seconds` by the clock, and the processor seconds of each part, imports included; after that
`gradients`, which only MOON needs. `warm_seconds`: the same again from the cache, one after the other: mostly
importing.

`fresh_ratio`: the time of fifty steps of training in a process that has just compiled the kernel, over that in a
process that has loaded it from disk; the least of several, in processor seconds.

The last line of the output is JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

MODULE = "fedrel.extractors.pcnn.all_kernels"
LIMITS = {"cold_start_seconds": 12.0, "fresh_ratio": 1.2}
STEPS = """
import time
import numpy as np
import torch
from fedrel.extractors.batches import Batch
from fedrel.extractors.pcnn.pcnn import PCNN

torch.set_num_threads(1)
random, sentences, length = np.random.default_rng(1), 320, 40
head = random.integers(0, length // 2, sentences)
batch = Batch(
    words=torch.from_numpy(random.integers(1, 5000, sentences * length)),
    starts=torch.arange(0, sentences * length + 1, length),
    head=torch.from_numpy(head),
    tail=torch.from_numpy(head + length // 3),
    bags=torch.arange(sentences + 1),
    labels=torch.from_numpy(random.integers(0, 53, sentences)),
    rows=np.arange(sentences),
)
pcnn = PCNN(5000, 53, generator=torch.Generator().manual_seed(1))
orders, seconds = [np.arange(sentences)] * 5, []
for _ in range(8):
    begin = time.process_time()
    pcnn.fit(batch, orders, batch_size=32, lr=0.1, weight_decay=1e-5, seed=1)
    seconds.append(time.process_time() - begin)
print(min(seconds[1:]))
"""


def main() -> int:
    """Compile, and compare."""
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        begin = time.perf_counter()
        parts = {part: compiling(part, environment) for part in ("training", "scoring")}
        seconds = {part: finished(process) for part, process in parts.items()}
        found["cold_start_seconds"] = time.perf_counter() - begin
        seconds["gradients"] = finished(compiling("gradients", environment))
        found["processor_seconds"] = seconds
        begin = time.perf_counter()
        for part in ("training", "scoring"):
            finished(compiling(part, environment))
        found["warm_seconds"] = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        fresh, loaded = (training_seconds(environment) for _ in range(2))
        found |= {"fresh_ratio": fresh / loaded, "fresh_seconds": fresh, "loaded_seconds": loaded}
    missed = [
        f"{key} is {found[key]:.2f}, expected {most}" for key, most in LIMITS.items() if found[key] > most
    ]  # type: ignore[operator]
    print(*missed, sep="\n", file=sys.stderr)
    print(json.dumps(rounded(found)))
    return bool(missed)


def compiling(part: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process that compiles a part."""
    return subprocess.Popen([sys.executable, "-m", MODULE, part], env=environment)


def finished(process: subprocess.Popen[bytes]) -> float:
    """Wait for a process; its processor seconds."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"compiling failed: {process.args!r}")
    return used.ru_utime + used.ru_stime


def training_seconds(environment: dict[str, str]) -> float:
    """Steps of training in a process of its own."""
    done = subprocess.run([sys.executable, "-c", STEPS], env=environment, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def rounded(value: object) -> object:
    """Numbers to three places."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
