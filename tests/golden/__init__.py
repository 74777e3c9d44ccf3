"""Recorded results of every method: a change that should change no result is tested against them.

`cases.py` has the configs, `inputs.py` writes the files they read, `runs.py` runs one (the only file here that
imports `fedrel`), `records.py` makes hashes of a run folder, and `golden.json` keeps them.
`python -m tests.golden` renews that file.
"""
