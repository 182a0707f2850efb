"""A key is in nothing that leaves a model call, wherever the endpoint or the client puts it."""

from __future__ import annotations

import json
import sys
import traceback
import types
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, Literal

import httpx2
import openai
import pytest
from pydantic import BaseModel, ValidationError

from regnexe import ConfigurationError, RegnexeAgentBuilder, RunStatus, chat_model
from regnexe.models.addresses import credentials_in, fault_of, shown
from regnexe.models.failures import ModelSource, explained
from regnexe.models.secrets import cleaned
from regnexe.testing import DeepSeekServer, RecordingListener
from regnexe.testing.deepseek import Fault
from regnexe.testing.deepseek.errors import ErrorAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regnexe import AgentResult

KEY = "sk-nobody-may-read-this-0123456789"
Way = Literal["awaited", "streamed"]


@pytest.fixture(params=["awaited", "streamed"])
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeepSeekServer]:
    async def no_wait(seconds: float) -> None: ...

    monkeypatch.setattr("openai._base_client.anyio.sleep", no_wait)
    with DeepSeekServer(keys=[KEY]) as running:
        for name in ("DEEPSEEK", "MOONSHOT"):
            monkeypatch.setenv(f"{name}_BASE_URL", running.base_url)
            monkeypatch.setenv(f"{name}_API_KEY", KEY)
        yield running


def answer(body: Any, status: int = 200, kind: str = "application/json", **headers: str) -> ErrorAnswer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ErrorAnswer(status, content, {"content-type": kind, **headers})


def message(**fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **fields}, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


EVENT = f"data: {json.dumps({'error': {'message': KEY, 'code': KEY, 'param': KEY, 'type': KEY}})}\n\n".encode()
CHUNK = f"data: {json.dumps({'id': '1', 'object': 'chat.completion.chunk', 'choices': KEY})}\n\n".encode()

ECHOES: dict[str, ErrorAnswer] = {
    "an error in a 200": answer({"error": {"message": f"the key {KEY} is bad", "code": KEY}}),
    "a text as error in a 200": answer({"error": KEY}),
    "a list as error in a 200": answer({"error": [KEY, {KEY: [KEY]}]}),
    "no choices": answer({"choices": None, KEY: KEY}),
    "other fields": answer({KEY: KEY}),
    "content that is no text": answer(message(content={"said": KEY})),
    "a field that is none": answer({**message(content="x"), "usage": KEY}),
    "no JSON": answer(f"<html>{KEY}</html>".encode()),
    "HTML": answer(f"<html>{KEY}</html>".encode(), kind="text/html"),
    "bytes that are no text": answer(b"\xff\xfe" + KEY.encode()),
    "an event": answer(EVENT, kind="text/event-stream"),
    "a wrong event": answer(CHUNK, kind="text/event-stream"),
    "an event that is no JSON": answer(f"data: {{{KEY}\n\n".encode(), kind="text/event-stream"),
    "code, param and type": answer({"error": {"message": "no", "code": KEY, "param": KEY, "type": KEY}}, 400),
    "a header": answer({"error": {"message": "no"}}, 401, **{"x-request-id": KEY, "x-echo": f"Bearer {KEY}"}),
    "a body that is no JSON": answer(f"<html>{KEY}</html>".encode(), 503, "text/html"),
    "an overflow": answer({"error": {"message": f"maximum context length is 7, {KEY}", "code": KEY}}, 400),
}


async def ask(vendor: str, way: Way, heard: RecordingListener) -> AgentResult:
    agent = RegnexeAgentBuilder().with_default_model(vendor, "deepseek-flash").with_event_listener(heard).build()
    if way == "awaited":
        return await agent.ainvoke("hello")
    async with agent.astream("hello") as stream:
        async for _ in stream:
            pass
    return stream.result


def everything(error: BaseException) -> str:
    """What can be read of an exception and of all that led to it."""
    told = traceback.format_exception(error)
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or any(current is one for one in seen):
            continue
        seen.append(current)
        waiting += [current.__cause__, current.__context__]
        told += [str(current), repr(current), repr(vars(current)), repr(getattr(current, "__notes__", ""))]
        for name in dir(current):
            if not name.startswith("_"):
                value = getattr(current, name, None)
                told += [f"{value!r} {value!s}"]
                told += _exchanged(value) if name in ("request", "response") else []
    return "\n".join(told)


def _exchanged(value: Any) -> list[str]:
    if isinstance(value, httpx2.Response):
        return [str(dict(value.headers)), value.text, *_exchanged(value.request)]
    return [str(dict(value.headers))]


@pytest.mark.parametrize("vendor", ["deepseek", "moonshot"])
@pytest.mark.parametrize("echo", ECHOES)
async def test_a_key_that_is_echoed_anywhere_is_in_no_error_event_or_repr(
    echo: str, vendor: str, server: DeepSeekServer, way: Way
) -> None:
    server.fail_next(Fault(ECHOES[echo]), 3)
    heard = RecordingListener()
    result = await ask(vendor, way, heard)
    assert server.requests[0].api_key == KEY
    told = [repr(result), *map(repr, heard.events)]
    if result.status is RunStatus.ERROR:
        assert result.error is not None
        assert str(result.error)
        told.append(everything(result.error))
    assert [text for text in told if KEY in text] == []


def test_a_key_in_a_text_is_in_no_error_of_a_synchronous_call_either(server: DeepSeekServer) -> None:
    for vendor in ("deepseek", "moonshot"):
        server.fail_next(Fault(ECHOES["an error in a 200"]))
        with pytest.raises(ValueError, match=r"the key \*\*\* is bad") as caught:
            chat_model(vendor, "deepseek-flash").invoke("hello")
        assert KEY not in everything(caught.value)


# --- any exception ---


class Strict(BaseModel):
    """Its validation errors quote what they were given, and cannot be changed."""

    number: int


def unchangeable() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Strict.model_validate({"number": KEY})
    assert KEY in str(caught.value)
    return caught.value


def test_every_attribute_note_and_cause_of_an_error_is_cleaned() -> None:
    error, cause, context = ValueError({KEY: [KEY, (KEY, 1)]}), KeyError(KEY), OSError(2, KEY, f"/tmp/{KEY}")
    error.add_note(f"sent {KEY}")
    error.__cause__, cause.__context__ = cause, context
    context.__cause__ = UnicodeDecodeError("utf-8", f"\xff{KEY}".encode(), 0, 1, KEY)
    assert cleaned(error, [KEY]) is error
    assert error.args == ({"***": ["***", ("***", 1)]},)
    assert KEY not in everything(error)


def test_causes_that_go_round_end() -> None:
    error, other = ValueError(KEY), TypeError(KEY)
    error.__cause__, other.__context__ = other, error
    error.__context__ = error
    assert cleaned(error, [KEY]) is error
    assert KEY not in f"{error} {other}"


def test_the_members_of_a_group_are_cleaned() -> None:
    inside = ValueError(KEY)
    group = ExceptionGroup("some", [inside, ExceptionGroup("more", [KeyError(KEY)])])
    assert cleaned(group, [KEY]) is group
    assert KEY not in everything(group)


def test_an_error_that_cannot_be_changed_is_replaced_by_its_text() -> None:
    found = explained(unchangeable(), ModelSource(vendor="V", model="m", base_url="https://x.test", key=KEY))
    assert type(found) is RuntimeError
    assert str(found).startswith("ValidationError: 1 validation error for Strict")
    assert KEY not in everything(found)


def test_a_cause_that_cannot_be_changed_is_left_out() -> None:
    error = ValueError("no")
    error.__cause__ = unchangeable()
    assert cleaned(error, [KEY]) is error
    assert KEY not in everything(error)


@pytest.mark.parametrize("key", ["", "none", "EMPTY", "ollama"])
def test_a_word_that_stands_in_for_a_key_is_left_in_texts(key: str) -> None:
    assert str(cleaned(ValueError(f"none, EMPTY, ollama{key}"), [key])) == f"none, EMPTY, ollama{key}"


def test_an_answer_that_is_no_json_is_told_without_what_it_holds() -> None:
    found = explained(
        JSONDecodeError("Expecting value", f"<{KEY}>", 0),
        ModelSource(vendor="V", model="m", base_url="https://x.test", key=KEY),
    )
    assert isinstance(found, JSONDecodeError)
    assert "V gave an answer that is not valid JSON" in str(found)
    assert KEY not in everything(found)


# --- addresses ---

ADDRESSES = {
    "https://user:pass@host/v1": "https://***@host/v1",
    "https://user@host": "https://***@host",
    "https://us@er:p@ss@host": "https://***@host",
    "https://user:p/a?ss@host": "https://***@host",
    "user:pass@host": "***@host",
    "https://host/v1?key=secret": "https://host/v1?***",
    "https://host:8080/v1": "https://host:8080/v1",
    "host": "host",
    "": "",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_shown_without_user_password_and_query(address: str) -> None:
    assert shown(address) == ADDRESSES[address]


def test_what_stands_before_the_host_is_taken_out_of_texts() -> None:
    address = "https://someone:pass-word@127.0.0.1:1/v1"
    assert credentials_in(address) == "someone:pass-word@"
    source = ModelSource(vendor="V", model="m", base_url=address)
    error = explained(ValueError(f"no route to {address}"), source)
    assert str(error) == "no route to https://***127.0.0.1:1/v1"


async def test_a_hint_shows_no_password_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONSHOT_API_KEY", KEY)
    monkeypatch.setenv("MOONSHOT_BASE_URL", "http://someone:pass-word@127.0.0.1:1/v1")
    model: Any = chat_model("moonshot", "m")
    model.root_async_client.max_retries = model.async_client._client.max_retries = 0
    with pytest.raises(openai.APIConnectionError) as caught:
        await model.ainvoke("hello")
    assert r"no answer from http://***@127.0.0.1:1/v1" in str(caught.value)
    assert "pass-word" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "address",
    ["https://h", "http://localhost:8080", "HTTPS://h/v1/", "http://[::1]:80/v1", "http://127.0.0.1", "https://m_x.a-b.c",
     "https://münchen.de", "http://h:"],
)  # fmt: skip
def test_an_address_of_a_host_has_no_fault(address: str) -> None:
    assert fault_of(address) is None
    openai.OpenAI(api_key=KEY, base_url=address).close()


@pytest.mark.parametrize(
    "address",
    ["h", "ftp://h", "//h", "http://", "https:///v1", "http://:80", "http://[bad", "http://h:port", "http://h:99999",
     "http://h:-1", "http://h:0", "http://h o", "http://h/a b", "http://h\tx", "http://a..b", f"http://{'a' * 64}",
     "http://u:p@", "http://u:p@h:port", "http://[::1", "http://]"],
)  # fmt: skip
@pytest.mark.parametrize("vendor", ["deepseek", "moonshot", "ollama"])
def test_an_address_that_is_none_is_refused_by_its_variable(
    vendor: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = types.ModuleType("langchain_ollama")
    ollama.ChatOllama = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "langchain_ollama", ollama)
    monkeypatch.setenv(f"{vendor.upper()}_API_KEY", KEY)
    monkeypatch.setenv(f"{vendor.upper()}_BASE_URL", address)
    with pytest.raises(ConfigurationError, match=f"{vendor.upper()}_BASE_URL must ") as caught:
        chat_model(vendor, "m")
    assert "u:p" not in "".join(traceback.format_exception(caught.value)).partition("ConfigurationError")[2]
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
