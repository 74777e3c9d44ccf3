"""How fast checksums are verified: of columns when a corpus is opened, of weights when they are written and read.

    python benchmarks/checksums.py [--megabytes 512]

Columns must be compared at 1 GB/s at least, from memory (the page cache), once a process.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedrel.data.column_files import checksum
from fedrel.files import read_tensors, write_tensors

ASKED = 1.0  # GB/s


def rate(size: int, work: Callable[[], object], turns: int = 5) -> float:
    """GB/s of the fastest of some turns; the first one only warms up."""
    seconds = []
    for _ in range(turns + 1):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return size / min(seconds[1:]) / 1e9


def main() -> None:
    """Measure, print JSON, and fail below what is asked."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, default=512)
    size = arguments.parse_args().megabytes << 20
    content = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    with tempfile.TemporaryDirectory() as scratch:
        column, weights = Path(scratch) / "column.bin", Path(scratch) / "weights.safetensors"
        content.tofile(column)
        tensors = {"words.weight": content[: size // 8].view(np.float32)}
        found = {
            "columns_gb_per_second": rate(size, lambda: checksum(column)),
            "writing_weights_gb_per_second": rate(size // 8, lambda: write_tensors(weights, tensors, {})),
            "reading_weights_gb_per_second": rate(size // 8, lambda: read_tensors(weights, "weights", "")),
        }
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))
    raise SystemExit(found["columns_gb_per_second"] < ASKED)


if __name__ == "__main__":
    main()
