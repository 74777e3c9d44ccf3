"""Training in one place: which bags a round trains on, and what makes no sense there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fedrel.errors import UserError
from fedrel.methods.by_name import method


@pytest.mark.parametrize(
    ("share", "drawn"), [(1.0, None), (0.5, 5), (0.26, 3), (0.24, 2), (0.99, 10), (0.001, 1)]
)
def test_a_share_of_the_bags_is_drawn_at_least_one(share, drawn):
    site = SimpleNamespace(examples=list(range(10)), sample=lambda bags, count: (bags, count))
    found = method("centralised", {"centralised": {"share": share}}).examples(site)
    assert found == (site.examples if drawn is None else (site.examples, drawn))


@pytest.mark.parametrize("one_place", ["centralised", "validation-only"])
@pytest.mark.parametrize("other", ["moon", "scaffold"])
def test_there_is_nothing_to_compare_or_correct_between_sites(one_place, other):
    with pytest.raises(
        UserError, match=f"{one_place} and {other} cannot be composed|{other} and {one_place}"
    ):
        method(f"{one_place}+{other}", {})
