"""Several functions on one thread: work that they share is done once, and each goes on with its own part."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("greenlet")

from fedrel.federation.resident import Wait, side_by_side


def test_what_several_wait_for_is_found_in_one_call_and_in_their_order():
    calls = []

    def squares(numbers: list[int]) -> list[int]:
        calls.append(list(numbers))
        return [number**2 for number in numbers]

    def function(number: int, rounds: int, wait: Wait) -> int:
        for _ in range(rounds):
            number = wait("squares", squares, number)
        return number

    functions = [lambda wait, n=n, r=r: function(n, r, wait) for n, r in [(2, 2), (3, 1), (5, 0), (7, 2)]]
    assert side_by_side(functions) == [16, 9, 5, 2401]
    assert calls == [[2, 3, 7], [4, 49]]


def test_different_keys_are_different_calls():
    calls = []

    def note(wanted: list[str]) -> list[str]:
        calls.append(list(wanted))
        return wanted

    keys = ["a", "b", "a"]
    found = side_by_side([lambda wait, at=at: wait(keys[at], note, f"{at}") for at in range(3)])
    assert found == ["0", "1", "2"]
    assert calls == [["0", "2"], ["1"]]


def test_what_a_function_or_its_work_raises_is_raised():
    def wrong(_: list[int]) -> list[int]:
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError):
        side_by_side([lambda wait: wait("key", wrong, 1), lambda wait: 2])

    def function(_: Wait) -> int:
        raise KeyError("also no")

    with pytest.raises(KeyError):
        side_by_side([lambda wait: wait("key", lambda numbers: numbers, 1), function])


def test_a_function_sees_the_context_of_its_caller():
    with torch.no_grad():
        assert side_by_side([lambda _: torch.is_grad_enabled()]) == [False]
