from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from regnexe import AgentResult, InvalidSessionId, RegnexeError, RunStatus, SessionKey, errors


def every_class() -> list[type[RegnexeError]]:
    found = [RegnexeError]
    for kind in found:
        found += [sub for sub in kind.__subclasses__() if sub.__module__.startswith("regnexe") and sub not in found]
    return found


def made(kind: type[RegnexeError]) -> RegnexeError:
    parameters = inspect.signature(kind.__init__).parameters.values()
    keyword_only = {p.name: ("a", "b") for p in parameters if p.kind is p.KEYWORD_ONLY}
    error: Any = kind
    return error("what happened", **keyword_only)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_every_exception_can_be_pickled_and_copied_with_its_attributes(kind: type[RegnexeError]) -> None:
    error = made(kind)
    error.add_note("a note")
    copies = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for again in [*copies, copy.copy(error), copy.deepcopy(error)]:
        assert type(again) is kind
        assert (str(again), again.args) == ("what happened", ("what happened",))
        assert vars(again) == vars(error)
        assert again.__notes__ == ["a note"]


def test_an_exception_of_the_package_as_it_is_raised_survives_pickling() -> None:
    with pytest.raises(InvalidSessionId) as caught:
        SessionKey("a", "", "s")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.field, again.value, str(again)) == ("user_id", "", str(caught.value))


def test_a_users_own_subclass_with_another_constructor_can_be_pickled_and_copied() -> None:
    assert vars(pickle.loads(pickle.dumps(Own(3, colour="red")))) == {"number": 3, "colour": "red"}
    assert str(copy.copy(Own(3, colour="red"))) == "number 3"


class Own(RegnexeError, OSError):
    def __init__(self, number: int, *, colour: str) -> None:
        super().__init__(f"number {number}")
        self.number = number
        self.colour = colour


def test_the_tree_in_the_docstring_names_every_class_and_all_lists_them() -> None:
    names = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, RegnexeError)}
    assert sorted(names) == errors.__all__
    assert all(f" {name} " in f" {errors.__doc__} ".replace("\n", " \n ") for name in names)


def test_a_result_that_failed_raises_what_can_be_pickled() -> None:
    result = AgentResult(
        status=RunStatus.CANCELLED,
        final_text="",
        session_id="s",
        thread_id="t",
        run_id="r",
        _read_session=lambda: None,  # type: ignore[arg-type,return-value]
    )
    with pytest.raises(RegnexeError) as caught:
        result.raise_for_status()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
