"""Vendors: keys, addresses, names, and models that users made themselves."""

from __future__ import annotations

import asyncio
import builtins
import http.server
import json
import logging
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import openai
import pytest
from langchain_core.messages import HumanMessage
from langchain_deepseek import ChatDeepSeek
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from regnexe import ConfigurationError, RegnexeAgentBuilder, Vendor, chat_model
from regnexe.models import vendors
from regnexe.models.deepseek import MODELS, DeepSeekChatModel
from regnexe.models.hosted import HostedChatModel
from regnexe.models.offline import OfflineChatModel
from regnexe.models.openai_clients import forget_openai_settings
from regnexe.testing import DeepSeekServer

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "sk-of-the-vendor-0123456789"
FOREIGN = "sk-of-openai-9876543210"

HOSTED = {
    Vendor.ALIYUN: ("DASHSCOPE_API_KEY", "ALIYUN_KEY", "https://dashscope.aliyuncs.com/compatible-mode/v1"),
    Vendor.DEEPSEEK: ("DEEPSEEK_API_KEY", "DEEPSEEK_KEY", "https://api.deepseek.com/v1"),
    Vendor.DOUBAO: ("ARK_API_KEY", "DOUBAO_KEY", "https://ark.cn-beijing.volces.com/api/v3"),
    Vendor.HUNYUAN: ("TOKENHUB_API_KEY", "HUNYUAN_KEY", "https://tokenhub.tencentmaas.com/v1"),
    Vendor.LINGYI: ("YI_API_KEY", "LINGYI_KEY", "https://api.lingyiwanwu.com/v1"),
    Vendor.MINIMAX: ("MINIMAX_API_KEY", "MINIMAX_KEY", "https://api.minimaxi.com/v1"),
    Vendor.MOONSHOT: ("MOONSHOT_API_KEY", "MOONSHOT_KEY", "https://api.moonshot.cn/v1"),
    Vendor.OPENAI: ("OPENAI_API_KEY", "OPENAI_KEY", "https://api.openai.com/v1"),
    Vendor.QIANFAN: ("QIANFAN_API_KEY", "QIANFAN_KEY", "https://qianfan.baidubce.com/v2"),
    Vendor.STEPFUN: ("STEPFUN_API_KEY", "STEPFUN_KEY", "https://api.stepfun.com/v1"),
    Vendor.ZHIPU: ("ZHIPUAI_API_KEY", "ZHIPU_KEY", "https://open.bigmodel.cn/api/paas/v4"),
}
OTHERS = sorted(set(HOSTED) - {Vendor.OPENAI})
OPENAI_SETTINGS = {
    "OPENAI_API_KEY": FOREIGN,
    "OPENAI_ADMIN_KEY": f"{FOREIGN}-admin",
    "OPENAI_API_BASE": "http://127.0.0.1:1/stolen",
    "OPENAI_BASE_URL": "http://127.0.0.1:1/stolen",
    "OPENAI_PROXY": "http://127.0.0.1:1",
    "OPENAI_ORG_ID": "org-of-openai",
    "OPENAI_ORGANIZATION": "org-of-openai",
    "OPENAI_PROJECT_ID": "project-of-openai",
    "OPENAI_CUSTOM_HEADERS": f"X-Of-OpenAI: yes\nAuthorization: Bearer {FOREIGN}",
}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for vendor, hosted in vendors._HOSTED.items():
        for name in (*hosted.key_variables, *hosted.base_url_variables, f"{vendor.upper()}_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
    for name in (*OPENAI_SETTINGS, "OLLAMA_BASE_URL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(vendors, "_said", set())


@pytest.fixture
def openai_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OPENAI_SETTINGS.items():
        monkeypatch.setenv(name, value)


def clients(model: Any) -> list[Any]:
    return [model.root_client, model.root_async_client]


# --- keys and addresses ---


def test_every_vendor_of_the_list_is_tested_here() -> None:
    assert set(Vendor) == {*HOSTED, Vendor.OFFLINE, Vendor.OLLAMA}
    assert set(vendors._HOSTED) == set(HOSTED)


@pytest.mark.parametrize("vendor", HOSTED)
def test_a_vendor_is_reached_at_its_address_with_its_key(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    standard, short, address = HOSTED[vendor]
    monkeypatch.setenv(short, f"{KEY}-short")
    assert {client.api_key for client in clients(chat_model(vendor, "m"))} == {f"{KEY}-short"}
    monkeypatch.setenv(standard, f" {KEY}\n")
    model = chat_model(vendor.upper(), "m")
    assert isinstance(model, ChatDeepSeek if vendor is Vendor.DEEPSEEK else ChatOpenAI)
    for client in clients(model):
        assert (client.api_key, str(client.base_url).rstrip("/")) == (KEY, address)


@pytest.mark.parametrize("vendor", HOSTED)
def test_a_missing_key_is_named_by_both_variables(vendor: Vendor) -> None:
    standard, short, _ = HOSTED[vendor]
    with pytest.raises(ConfigurationError, match=rf"set the environment variable {standard} \(or .*{short}\)"):
        chat_model(vendor, "m")


@pytest.mark.parametrize("vendor", HOSTED)
def test_a_vendor_is_moved_by_its_variable(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTED[vendor][0], KEY)
    monkeypatch.setenv(f"{vendor.upper()}_BASE_URL", "https://gateway.test/v1")
    assert {str(client.base_url) for client in clients(chat_model(vendor, "m"))} == {"https://gateway.test/v1/"}


@pytest.mark.parametrize(
    ("vendor", "variable"),
    [
        (Vendor.DEEPSEEK, "DEEPSEEK_API_BASE"),
        (Vendor.OPENAI, "OPENAI_API_BASE"),
        (Vendor.ALIYUN, "DASHSCOPE_BASE_URL"),
        (Vendor.DOUBAO, "ARK_BASE_URL"),
        (Vendor.ZHIPU, "ZHIPUAI_BASE_URL"),
    ],
)
def test_a_vendors_own_variable_moves_it_too(vendor: Vendor, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTED[vendor][0], KEY)
    monkeypatch.setenv(variable, "https://conventional.test/v1")
    assert {str(client.base_url) for client in clients(chat_model(vendor, "m"))} == {"https://conventional.test/v1/"}
    monkeypatch.setenv(f"{vendor.upper()}_BASE_URL", "https://ours.test/v1")
    assert {str(client.base_url) for client in clients(chat_model(vendor, "m"))} == {"https://ours.test/v1/"}


def test_an_address_of_another_form_is_refused_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    monkeypatch.setenv("DEEPSEEK_BASE_URL", "api.deepseek.com")
    with pytest.raises(ConfigurationError, match="DEEPSEEK_BASE_URL must begin with https://"):
        chat_model(Vendor.DEEPSEEK, "deepseek-flash")


@pytest.mark.parametrize("key", [f"{KEY} {KEY}", f"{KEY}\nX: y", f"{KEY}\u201d"])
def test_a_key_that_no_header_takes_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", key)
    with pytest.raises(ConfigurationError, match="the value of DEEPSEEK_API_KEY is no key") as caught:
        chat_model(Vendor.DEEPSEEK, "deepseek-flash")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("vendor", OTHERS)
@pytest.mark.usefixtures("openai_settings")
async def test_nothing_of_openais_goes_to_another_vendor(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    with DeepSeekServer() as server:
        monkeypatch.setenv(HOSTED[vendor][0], KEY)
        assert {str(client.base_url).rstrip("/") for client in clients(chat_model(vendor, "x"))} == {HOSTED[vendor][2]}
        monkeypatch.setenv(f"{vendor.upper()}_BASE_URL", server.base_url)
        model = chat_model(vendor, "deepseek-flash")
        await model.ainvoke("x")
        await asyncio.to_thread(model.invoke, "x")
        async for _ in model.astream("x"):
            pass
        assert len(server.requests) == 3
        for request in server.requests:
            assert request.api_key == KEY
            assert "openai" not in json.dumps([*request.headers.values(), *request.headers]).replace("OpenAI/P", "")
            assert FOREIGN not in str(request.headers)
            assert not {"openai-organization", "openai-project", "x-of-openai"} & set(request.headers)


@pytest.mark.usefixtures("openai_settings")
async def test_a_vendors_key_is_missing_though_openais_is_there() -> None:
    with pytest.raises(ConfigurationError, match="no key for moonshot"):
        chat_model(Vendor.MOONSHOT, "m")
    with DeepSeekServer() as server:
        await DeepSeekChatModel(model="deepseek-flash", base_url=server.base_url).ainvoke("x")
        assert server.requests[0].api_key == "none"


async def test_openais_own_settings_go_to_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    with DeepSeekServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
        monkeypatch.setenv("OPENAI_API_BASE", server.base_url)
        await chat_model(Vendor.OPENAI, "deepseek-flash").ainvoke("x")
        assert (server.requests[0].api_key, server.requests[0].headers["openai-organization"]) == (KEY, "org-mine")


@pytest.mark.parametrize("name", ["gpt-5-pro", "gpt-6-sol", "codex-mini"])
async def test_every_vendor_is_asked_by_chat_completions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with DeepSeekServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        with pytest.raises(openai.BadRequestError):
            await chat_model(Vendor.OPENAI, name).ainvoke("x")
        assert server.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("vendor", HOSTED)
def test_a_model_shows_its_key_nowhere(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTED[vendor][0], KEY)
    model = chat_model(vendor, "m")
    assert KEY not in f"{model!r} {model!s} {model.to_json()} {model.model_dump()}"
    assert model._get_ls_params().get("ls_provider") == vendor.value


# --- the fallback ---


def test_without_a_key_the_fallback_answers_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        agent = RegnexeAgentBuilder().with_default_model(Vendor.DEEPSEEK, "deepseek-flash", fallback="offline").build()
    assert agent.invoke("hello").status == "completed"
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("regnexe: no key for deepseek: set the environment variable DEEPSEEK_API_KEY")
    assert isinstance(chat_model(Vendor.ZHIPU, "m", fallback="offline"), OfflineChatModel)
    assert "ZHIPUAI_API_KEY" in capsys.readouterr().err


def test_with_a_key_the_fallback_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    assert isinstance(chat_model(Vendor.DEEPSEEK, "m", fallback="offline"), DeepSeekChatModel)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("fallback", ["openai", "", True])
def test_another_fallback_is_refused(fallback: Any) -> None:
    with pytest.raises(ConfigurationError, match='fallback must be "offline" or None'):
        RegnexeAgentBuilder().with_default_model(Vendor.DEEPSEEK, "m", fallback=fallback)


# --- retired names ---


@pytest.mark.parametrize(
    ("name", "level", "says"),
    [
        ("deepseek-chat", logging.WARNING, "switched off in July 2026"),
        ("deepseek-reasoner", logging.WARNING, "use deepseek-flash or deepseek-v4-pro"),
        ("deepseek-v4-flash", logging.INFO, "with deepseek-flash, which is the name to use"),
    ],
)
def test_a_retired_name_is_hinted_at_once(
    name: str, level: int, says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    with caplog.at_level(logging.INFO, "regnexe"):
        for _ in range(2):
            chat_model(Vendor.DEEPSEEK, name)
    (hint,) = caplog.records
    assert hint.levelno == level
    assert says in hint.getMessage()
    assert name in hint.getMessage()


@pytest.mark.parametrize("name", MODELS)
def test_a_name_that_is_not_retired_is_not_hinted_at(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    with caplog.at_level(logging.DEBUG, "regnexe"):
        chat_model(Vendor.DEEPSEEK, name)
    assert not caplog.records


# --- Ollama ---


def test_without_ollamas_package_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def blocked(name: str, *args: Any) -> Any:
        if name.partition(".")[0] == "langchain_ollama":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.delitem(sys.modules, "langchain_ollama", raising=False)
    monkeypatch.setattr(builtins, "__import__", blocked)
    with pytest.raises(ConfigurationError, match=r"pip install 'regnexe\[ollama\]'"):
        chat_model(Vendor.OLLAMA, "qwen3")


def test_ollama_is_made_with_its_own_class_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("langchain_ollama")
    module.ChatOllama = lambda **arguments: arguments  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "langchain_ollama", module)
    made: Any = chat_model(Vendor.OLLAMA, "qwen3")
    assert made == {"model": "qwen3", "base_url": None}
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://gpu:11434")
    made = chat_model(Vendor.OLLAMA, "qwen3")
    assert made == {"model": "qwen3", "base_url": "http://gpu:11434"}


# --- models that users made ---


def test_a_users_deepseek_model_is_repaired_with_the_same_settings(caplog: pytest.LogCaptureFixture) -> None:
    given = ChatDeepSeek(
        model="deepseek-v4-pro",
        api_key=SecretStr(KEY),
        base_url="http://127.0.0.1:1/v1",
        temperature=0.3,
        max_tokens=7,
        max_retries=5,
        timeout=3,
        tags=["mine"],
        extra_body={"thinking": {"type": "disabled"}},
        top_p=0.9,
    )
    with caplog.at_level(logging.INFO, "regnexe"):
        used: Any = RegnexeAgentBuilder().with_model(given)._model
    assert "same settings" in caplog.text
    assert type(used) is DeepSeekChatModel
    changed = {name for name in ChatDeepSeek.model_fields if getattr(used, name) != getattr(given, name)}
    assert changed == {"stream_usage", "use_responses_api", "profile", "root_async_client", "async_client"}
    for client, before in zip(clients(used), clients(given), strict=True):
        for name in ("api_key", "base_url", "max_retries", "timeout"):
            assert getattr(client, name) == getattr(before, name)
    assert used._get_request_payload([HumanMessage("x")]) == given._get_request_payload([HumanMessage("x")])
    assert type(RegnexeAgentBuilder().with_model(used)._model) is DeepSeekChatModel


def test_what_a_user_decided_stays_in_a_repaired_model() -> None:
    own = openai.AsyncOpenAI(api_key=KEY, base_url="http://127.0.0.1:1")
    given = ChatDeepSeek(
        model="deepseek-v4-pro",
        api_key=SecretStr(KEY),
        stream_usage=False,
        profile={"image_inputs": True, "structured_output": True},
        async_client=own.chat.completions,
    )
    used: Any = RegnexeAgentBuilder().with_model(given)._model
    assert used.stream_usage is False
    assert used.profile == {"image_inputs": True, "structured_output": True}
    assert used.async_client is given.async_client


def test_a_subclass_of_a_users_is_left_alone_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(ChatDeepSeek):
        """Has ways of its own."""

    given = Mine(model="deepseek-flash", api_key=SecretStr(KEY))
    with caplog.at_level(logging.WARNING, "regnexe"):
        assert RegnexeAgentBuilder().with_model(given)._model is given
    assert "Mine is used as it is" in caplog.text
    assert "derive it from regnexe.models.deepseek.DeepSeekChatModel" in caplog.text


def test_an_openai_model_for_deepseek_is_left_alone_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    given = ChatOpenAI(model="deepseek-flash", api_key=SecretStr(KEY), base_url="https://api.deepseek.com/v1")
    other = ChatOpenAI(model="x", api_key=SecretStr(KEY))
    with caplog.at_level(logging.WARNING, "regnexe"):
        assert RegnexeAgentBuilder().with_model(other)._model is other
        assert not caplog.records
        assert RegnexeAgentBuilder().with_model(given)._model is given
    assert "use with_default_model(Vendor.DEEPSEEK, ...)" in caplog.text


# --- event loops ---


@pytest.fixture
def keep_alive_address() -> Iterator[str]:
    """The address of a server that keeps connections open, as the vendors' do."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            message = {"role": "assistant", "content": "hi"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = json.dumps(
                {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.mark.parametrize("cls", [DeepSeekChatModel, HostedChatModel, ChatDeepSeek])
def test_one_model_serves_any_number_of_event_loops(cls: Any, keep_alive_address: str) -> None:
    model: Any = vendors.given_model(cls(model="m", api_key=KEY, base_url=keep_alive_address, max_retries=0))

    async def twice() -> str:
        return str((await model.ainvoke("x")).text + (await model.ainvoke("x")).text)

    assert [asyncio.run(twice()) for _ in range(3)] == ["hihi"] * 3
    found: list[str] = []
    with asyncio.Runner() as one, asyncio.Runner() as two:
        for runner in (one, two, one, two):
            thread = threading.Thread(target=lambda runner=runner: found.append(runner.run(twice())))
            thread.start()
            thread.join()
    assert found == ["hihi"] * 4
    assert not [loop for loop in model.root_async_client._client._clients if not loop.is_closed()]


def test_a_model_behind_openais_proxy_serves_any_number_of_event_loops(
    keep_alive_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_PROXY", keep_alive_address.removesuffix("/v1"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://only-the-proxy-knows.test/v1")
    model: Any = chat_model(Vendor.OPENAI, "m")

    async def twice() -> str:
        return str((await model.ainvoke("x")).text + (await model.ainvoke("x")).text)

    assert [asyncio.run(twice()) for _ in range(3)] == ["hihi"] * 3
    assert model.invoke("x").text == "hi"
    model.root_client.close()


@pytest.mark.parametrize("cls", [DeepSeekChatModel, HostedChatModel, ChatDeepSeek])
async def test_a_users_own_http_client_is_used_as_it_is(cls: Any, keep_alive_address: str) -> None:
    async with openai.DefaultAsyncHttpxClient(headers={"x-mine": "yes"}) as own:
        model: Any = vendors.given_model(
            cls(model="m", api_key=KEY, base_url=keep_alive_address, http_async_client=own)
        )
        assert model.root_async_client._client is own
        assert (await model.ainvoke("x")).text == "hi"


# --- what is relied on ---


def test_the_private_names_of_langchain_that_are_overridden_are_still_there() -> None:
    for name in (
        "_get_request_payload",
        "_convert_input",
        "_resolve_model_profile",
        "validate_environment",
    ):
        assert hasattr(ChatDeepSeek, name), f"langchain-deepseek has no {name} any more; adapt regnexe.models.deepseek"
    for name in ("_generate", "_agenerate", "_stream", "_astream", "_create_chat_result"):
        for cls in (ChatDeepSeek, ChatOpenAI):
            assert hasattr(cls, name), f"{cls.__name__} has no {name} any more; adapt regnexe.models.guarded"
    model = ChatDeepSeek(model="m", api_key=SecretStr(KEY))
    payload = model._get_request_payload([("system", "s"), ("human", "h"), ("ai", "a")])
    assert [sent["role"] for sent in payload["messages"]] == ["system", "user", "assistant"], (
        "langchain-deepseek does not send one entry for each message any more; adapt regnexe.models.deepseek_wire"
    )
    assert model._convert_input("h").to_messages() == [HumanMessage("h")]


def test_the_private_names_of_the_openai_client_that_are_cleared_are_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in OPENAI_SETTINGS.items():
        monkeypatch.setenv(name, value)
    for cls in (openai.OpenAI, openai.AsyncOpenAI):
        client: Any = cls(api_key=KEY, base_url="https://x.test")
        said = "openai reads its environment variables into other names now; adapt regnexe.models.openai_clients"
        assert client._custom_headers["X-Of-OpenAI"] == "yes", said
        assert client._ambient_authorizations == {f"Bearer {FOREIGN}"}, said
        forget_openai_settings(client, None)
        assert [name for name, value in vars(client).items() if "of-openai" in repr(value).lower()] == [], said
