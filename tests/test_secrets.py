"""A key is in nothing that leaves a model call, wherever the endpoint or the client puts it."""

from __future__ import annotations

import base64
import html
import json
import sys
import traceback
import types
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

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


def events(*pieces: dict[str, Any]) -> ErrorAnswer:
    """A stream of these pieces."""
    common = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    body = "".join(f"data: {json.dumps({**common, **piece})}\n\n" for piece in pieces) + "data: [DONE]\n\n"
    return answer(body.encode(), kind="text/event-stream")


def piece(reason: str | None, **delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


ENDED = {**message(content=""), "id": KEY, "system_fingerprint": KEY, "model": KEY}
ENDED["choices"][0]["finish_reason"] = f"Bearer {KEY}"
COUNTED = {"prompt_tokens": f"Bearer {KEY} of the request", "completion_tokens": 1, "total_tokens": 1}

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
    "a finish reason": answer(ENDED),
    "a streamed finish reason": events({**piece(f"Bearer {KEY}"), "id": KEY, "model": KEY}),
    "a count that is no number": answer({**message(content="x"), "usage": COUNTED}),
    "a streamed count that is no number": events(piece(None, content="x"), {**piece("stop"), "usage": COUNTED}),
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
    source = ModelSource(vendor="V", model="m", base_url="https://x.test", key=key)
    assert str(explained(ValueError(f"none, EMPTY, ollama{key}"), source)) == f"none, EMPTY, ollama{key}"


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
    "https://host/v1#secret": "https://host/v1#***",
    "https://u:p@host/v1#a?b": "https://***@host/v1#***",
    "https://host/v1?a#b": "https://host/v1?***",
    f"https://host/{'a' * 300}": f"https://host/{'a' * 187}…",
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
    assert "pass-word" not in repr(source)
    error = explained(ValueError(f"no route to {address}"), source)
    assert str(error) == "no route to https://***127.0.0.1:1/v1"


def basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "echo",
    ["p%40ss%2Fwörd", "p@ss/wörd", "us%20er:p%40ss/w%C3%B6rd", "us er:p@ss/wörd", r"us er:p@ss\/wörd",
     r"us er:p@ss\/w\u00f6rd", "us%20er:p%40ss%2Fw%C3%B6rd", "us%20er:p%40ss%2fw%c3%b6rd", basic("us er:p@ss/wörd"),
     basic("us er:p@ss/wörd").rstrip("="), basic("us er:p@ss/wörd").replace("=", "%3D")],
)  # fmt: skip
def test_user_and_password_are_hidden_in_every_form(echo: str) -> None:
    source = ModelSource(vendor="V", model="m", base_url="https://us%20er:p%40ss%2Fwörd@host/v1")
    told = str(explained(ValueError(f"<{echo}>"), source))
    assert "***" in told
    assert [part for part in ("ss/w", "ss%2", "ss\\", "p%40", "p@", basic("us er:p@ss/w")[:12]) if part in told] == []


@pytest.mark.parametrize("secret", ["k/e+y&0123456789", 'k"e\\y-0123456789'])
def test_a_key_is_hidden_as_json_html_and_urls_write_it(secret: str) -> None:
    source = ModelSource(vendor="V", model="m", base_url="https://x.test", key=secret)
    escaped = json.dumps(secret)[1:-1]
    for echo in (
        secret,
        escaped,
        escaped.replace("/", r"\/"),
        html.escape(secret),
        quote(secret),
        quote(secret, safe=""),
    ):
        assert str(explained(ValueError(f"<{echo}>"), source)) == "<***>"


@pytest.mark.parametrize("address", ["https://host/v1/@x", "https://host", "https://u:abc@host", "https://u@host"])
def test_words_of_an_address_that_are_no_secret_stay_in_texts(address: str) -> None:
    source = ModelSource(vendor="V", model="m", base_url=address)
    assert str(explained(ValueError("u and abc at host, x"), source)) == "u and abc at host, x"


def test_a_token_in_place_of_a_user_is_hidden() -> None:
    source = ModelSource(vendor="V", model="m", base_url="https://token-123456@host/v1")
    assert str(explained(ValueError(f"token-123456 {basic('token-123456:')}"), source)) == "*** ***"


def test_reason_phrase_body_and_addresses_of_an_exchange_are_cleaned() -> None:
    address = "http://someone:pass-word@host/v1"
    request = httpx2.Request("POST", address, headers={"authorization": f"Basic {basic('someone:pass-word')}"})
    reason = {"reason_phrase": f"no {KEY}".encode()}
    slashed = json.dumps({"said": f"{KEY}/{address}"}).replace("/", r"\/")
    before = httpx2.Response(302, request=request, headers={"x-echo": KEY}, extensions=reason)
    response = httpx2.Response(400, request=request, text=slashed, extensions=reason, history=[before])
    error = openai.BadRequestError("no", response=response, body=None)
    explained(error, ModelSource(vendor="V", model="m", base_url=address, key=KEY))
    for one in (error.response, error.response.history[0]):
        told = f"{one!r} {one.reason_phrase} {one.extensions} {one.headers} {one.text} {one.url} {one.request.headers}"
        assert [secret for secret in (KEY, "pass-word", basic("someone:pass-word")) if secret in told] == []
    assert str(error.request.url) == "http://host/v1"


@pytest.mark.parametrize("vendor", ["deepseek", "moonshot"])
async def test_an_address_with_a_password_works_and_the_password_is_told_nowhere(
    vendor: str, server: DeepSeekServer, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.base_url.replace("http://", "http://usr:plainpassword@")
    monkeypatch.setenv(f"{vendor.upper()}_BASE_URL", address)
    model: Any = chat_model(vendor, "deepseek-flash")
    assert "plainpassword" not in f"{model!r} {model!s}"
    assert "http://***@127.0.0.1" in repr(model)
    coded = basic("usr:plainpassword")
    said = {"error": {"message": f"{coded} {coded.rstrip('=')} usr:plainpassword plainpassword", "code": coded}}
    server.fail_next(Fault(answer(said, 401, **{"x-echo": f"Basic {coded}"})), 3)
    heard = RecordingListener()
    result = await ask(vendor, way, heard)
    assert server.requests[0].headers["authorization"] == f"Basic {coded}"
    assert result.error is not None
    told = "".join([everything(result.error), repr(result), *map(repr, heard.events), str(result.error.request.url)])  # type: ignore[attr-defined]
    assert [secret for secret in ("plainpassword", coded.rstrip("=")) if secret in told] == []


def test_part_of_a_secret_that_pydantic_shortened_is_not_told() -> None:
    with pytest.raises(ValidationError) as caught:
        Strict.model_validate({"number": f"Authorization: Bearer {KEY} was in the request that was sent"})
    assert KEY not in str(caught.value)
    found = explained(caught.value, ModelSource(vendor="V", model="m", base_url="https://x.test", key=KEY))
    assert str(found).startswith("ValidationError: 1 validation error for Strict: number: Input should be a valid int")
    assert "Bearer" not in everything(found)


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
     "http://u:p@", "http://u:p@h:port", "http://[::1", "http://]", "http://999.999.999.999/v1", "http://[v1.x]/",
     "http://ｈ/", "http://€.com:1/v1", "http://☃.net:1/", "http://%00/", "http://h%zz/", "http://h\\x/", "http://h;x",
     "http://u:p@h{}/", pytest.param(f"http://h/{'a' * 70_000}", id="long"),
     pytest.param(f"http://h/{'☃' * 20_000}", id="long when encoded")],
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
