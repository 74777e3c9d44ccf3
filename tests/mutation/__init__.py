"""A mutation check of the methods and the messages: do the tests notice when the code is changed?

`python -m tests.mutation` changes one thing at a time, such as a `+` to a `-`, and runs the tests that belong to
the changed module.
"""
