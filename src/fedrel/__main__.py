"""`python -m fedrel`."""

from __future__ import annotations

from fedrel.cli.main import main

main()
