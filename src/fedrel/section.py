"""What every section of a config is: known keys only, and never changed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of a config file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
