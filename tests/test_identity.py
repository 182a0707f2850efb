from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regnexe import InvalidSessionId, SessionKey
from regnexe.identity import MAX_ID_LENGTH, new_session_id

ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=MAX_ID_LENGTH)
tricky_ids = st.one_of(ids, st.text(":%3A25a", min_size=1, max_size=12))


def test_plain_ids_read_as_they_are_in_the_thread_id() -> None:
    assert SessionKey("readme", "reader", "07-memory-a").thread_id == "readme:reader:07-memory-a"


def test_a_colon_or_percent_inside_a_part_is_encoded_and_nothing_else() -> None:
    assert SessionKey("a:b", "50%", "s/ä@例").thread_id == "a%3Ab:50%25:s/ä@例"


@given(st.tuples(tricky_ids, tricky_ids, tricky_ids), st.tuples(tricky_ids, tricky_ids, tricky_ids))
@example(("app", "alice:x", "s"), ("app", "alice", "x:s"))
@example(("a%3Ab", "u", "s"), ("a:b", "u", "s"))
@example(("a%", "3A", "s"), ("a%:3A", "x", "s"))
def test_different_triples_never_share_a_thread(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (SessionKey(*one).thread_id == SessionKey(*other).thread_id) == (one == other)


@given(tricky_ids, tricky_ids, tricky_ids)
def test_the_thread_id_gives_the_key_back(app: str, user: str, session: str) -> None:
    key = SessionKey(app, user, session)
    assert SessionKey.from_thread_id(key.thread_id) == key
    assert key.thread_id.count(":") == 2


@given(st.text(":%3A25ab", max_size=14))
def test_a_text_is_either_the_thread_id_of_the_key_it_gives_or_refused(text: str) -> None:
    try:
        key = SessionKey.from_thread_id(text)
    except InvalidSessionId:
        return
    assert key.thread_id == text


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "user_id must not be empty"),
        (None, "user_id must be a str, got NoneType"),
        (7, "user_id must be a str, got int"),
        (b"x", "user_id must be a str, got bytes"),
        ("x" * 256, "user_id must be at most 255 characters, got 256"),
        ("a\nb", r"user_id must not hold control characters or lone surrogates, found '\\n' at position 1"),
        ("a\x00", r"found '\\x00' at position 1"),
        ("\x85", r"found '\\x85' at position 0"),
        ("ok\ud800", r"found '\\ud800' at position 2"),
    ],
)
def test_a_part_that_cannot_be_an_id_is_refused_and_named(value: object, says: str) -> None:
    with pytest.raises(InvalidSessionId, match=says) as caught:
        SessionKey("app", value, "s")  # type: ignore[arg-type]
    assert caught.value.field == "user_id"
    assert caught.value.value == value
    assert isinstance(caught.value, ValueError)


def test_the_longest_allowed_part_is_allowed() -> None:
    key = SessionKey(":" * 255, "u", "s")
    assert SessionKey.from_thread_id(key.thread_id) == key


@pytest.mark.parametrize("text", ["", "a", "a:b", "a:b:c:d", "a::c", "a%3a:b:c", "a%:b:c", "a%41:b:c"])
def test_what_is_no_thread_id_of_ours_is_refused(text: str) -> None:
    with pytest.raises(InvalidSessionId):
        SessionKey.from_thread_id(text)


def test_a_thread_id_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidSessionId, match="thread id must be a str, got NoneType"):
        SessionKey.from_thread_id(None)  # type: ignore[arg-type]


def test_new_session_ids_are_usable_and_never_repeat() -> None:
    made = {new_session_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(SessionKey("a", "u", session_id) for session_id in made)
