"""Drawings as SVG files."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from fedrel.studio.svg import write_svg


def drawn() -> Figure:
    figure = Figure()
    figure.subplots().plot([1, 2], [3, 4], "o")
    return figure


def test_the_same_drawing_has_the_same_bytes_and_the_process_keeps_its_settings(tmp_path: Path) -> None:
    before = mpl.rcParams["svg.hashsalt"]
    for name, salt in (("a", "x"), ("b", "x"), ("c", "y")):
        write_svg(drawn(), tmp_path / name, salt)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c and b"<svg" in a
    assert mpl.rcParams["svg.hashsalt"] == before


def test_a_drawing_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.svg"
    path.write_text("before")

    def half(figure: Figure, part: Path, **options: object) -> None:
        part.write_text("<svg")
        raise RuntimeError

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(RuntimeError):
        write_svg(drawn(), path, "x")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
