"""What holds of every message, whichever method declares it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from fedrel.federation.messages import Message
from fedrel.methods.by_name import methods


def kinds(base: type[Message] = Message) -> Iterator[type[Message]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_no_message_of_the_package_can_be_changed_after_its_checks():
    methods()  # imports all of their files
    # The class as its module has it: `slots=True` makes a second one, and the first may live on for a while.
    ours = {
        getattr(sys.modules[one.__module__], one.__name__) for one in kinds() if "fedrel." in one.__module__
    }
    assert {"Model", "Update", "Holdings", "Claims", "ControlledUpdate", "ClassVectors"} <= {
        kind.__name__ for kind in ours
    }
    for kind in ours:
        assert kind.__dataclass_params__.frozen, kind
        assert "__slots__" in vars(kind), kind
