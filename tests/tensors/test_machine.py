"""Freed memory that stays with the process."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from fedrel.tensors.machine import keep_freed_memory

FAULTS = """
import resource, sys
import numpy as np
from fedrel.tensors.machine import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
def step():
    arrays = [np.ones(1 << 20) for _ in range(4)]  # 8 MB each
step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's settings")
def test_a_step_takes_no_new_pages() -> None:
    def faults(how: str) -> list[str]:
        command = [sys.executable, "-c", FAULTS, how]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    kept, many = faults("keep"), faults("not")
    assert kept[0] == "True" and int(kept[1]) < 1000 < int(many[1])


def test_other_systems_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory.__wrapped__()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())  # a library without these functions, as musl
    assert not keep_freed_memory.__wrapped__()
