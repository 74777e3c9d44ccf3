"""`python -m fedrel`."""

from fedrel.cli import main

main()
