"""What a run leaves in a folder so that other processes of its machine can sit down and answer for its sites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedrel.federation.materials import Materials

if TYPE_CHECKING:
    from fedrel.config import Config
    from fedrel.federation.desk import Desk


def hand_over(folder: Path, config: Config, materials: Materials, states: Path) -> None:
    """Leave the materials, the config, and the place where sites keep what they remember."""
    materials.save(folder)
    (folder / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    (folder / "states.txt").write_text(str(states.absolute()), encoding="utf-8")


def take_over(folder: Path) -> Desk:
    """A desk with what `hand_over` left, on one thread: more would change the order of sums."""
    import torch

    from fedrel.config import Config
    from fedrel.prepare import desk

    torch.set_num_threads(1)
    config = Config.model_validate_json((folder / "config.json").read_bytes())
    states = Path((folder / "states.txt").read_text(encoding="utf-8"))
    return desk(config, Materials.load(folder), states)
