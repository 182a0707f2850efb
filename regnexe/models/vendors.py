"""Model vendors: where they are, which variable holds the key, and how to make a chat model of theirs."""

from __future__ import annotations

import difflib
import logging
import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from regnexe.errors import ConfigurationError, UnknownVendor
from regnexe.models.addresses import fault_of, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.language_models import BaseChatModel

__all__ = ["Vendor", "chat_model", "given_model", "model_from_spec"]

logger = logging.getLogger("regnexe")


class Vendor(StrEnum):
    """Who serves a model. `OFFLINE` is a stand-in that needs no key and no network."""

    ALIYUN = "aliyun"
    DEEPSEEK = "deepseek"
    DOUBAO = "doubao"
    HUNYUAN = "hunyuan"
    LINGYI = "lingyi"
    MINIMAX = "minimax"
    MOONSHOT = "moonshot"
    OFFLINE = "offline"
    OLLAMA = "ollama"
    OPENAI = "openai"
    QIANFAN = "qianfan"
    STEPFUN = "stepfun"
    ZHIPU = "zhipu"


@dataclass(frozen=True, slots=True)
class _Hosted:
    """A vendor that is reached over the network with a key.

    Attributes:
        label: its name for people.
        base_url: where its OpenAI-compatible API is.
        key_variables: the environment variables that may hold the key, the vendor's own first.
        base_url_variables: those that move the address, after `<VENDOR>_BASE_URL`: the vendor's own.
    """

    label: str
    base_url: str
    key_variables: tuple[str, ...]
    base_url_variables: tuple[str, ...] = ()


# As the vendors' own pages and their users' configurations had them in November 2026.
_HOSTED: Mapping[Vendor, _Hosted] = {
    Vendor.ALIYUN: _Hosted(
        "Aliyun",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        ("DASHSCOPE_API_KEY", "ALIYUN_KEY"),
        ("DASHSCOPE_BASE_URL",),
    ),
    Vendor.DEEPSEEK: _Hosted(
        "DeepSeek",
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY", "DEEPSEEK_KEY"),
        ("DEEPSEEK_API_BASE",),
    ),
    Vendor.DOUBAO: _Hosted(
        "Doubao",
        "https://ark.cn-beijing.volces.com/api/v3",
        ("ARK_API_KEY", "DOUBAO_KEY"),
        ("ARK_BASE_URL",),
    ),
    Vendor.HUNYUAN: _Hosted(
        "Hunyuan",
        "https://tokenhub.tencentmaas.com/v1",
        ("TOKENHUB_API_KEY", "HUNYUAN_API_KEY", "HUNYUAN_KEY"),
    ),
    Vendor.LINGYI: _Hosted("01.AI", "https://api.lingyiwanwu.com/v1", ("YI_API_KEY", "LINGYI_KEY")),
    Vendor.MINIMAX: _Hosted("MiniMax", "https://api.minimaxi.com/v1", ("MINIMAX_API_KEY", "MINIMAX_KEY")),
    Vendor.MOONSHOT: _Hosted("Moonshot", "https://api.moonshot.cn/v1", ("MOONSHOT_API_KEY", "MOONSHOT_KEY")),
    Vendor.OPENAI: _Hosted(
        "OpenAI",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY", "OPENAI_KEY"),
        ("OPENAI_API_BASE",),
    ),
    Vendor.QIANFAN: _Hosted("Qianfan", "https://qianfan.baidubce.com/v2", ("QIANFAN_API_KEY", "QIANFAN_KEY")),
    Vendor.STEPFUN: _Hosted("StepFun", "https://api.stepfun.com/v1", ("STEPFUN_API_KEY", "STEPFUN_KEY")),
    Vendor.ZHIPU: _Hosted(
        "Zhipu",
        "https://open.bigmodel.cn/api/paas/v4",
        ("ZHIPUAI_API_KEY", "ZHIPU_KEY"),
        ("ZHIPUAI_BASE_URL",),
    ),
}

_ROUTED = (
    "the model {name!r} is retired; DeepSeek still serves requests for it with deepseek-flash, which is the name to use"
)
_OFF = (
    "the model {name!r} was switched off in July 2026, so DeepSeek refuses it; use deepseek-flash or "
    "deepseek-v4-pro. They think unless told not to: "
    'extra_body={{"thinking": {{"type": "disabled"}}}}'
)
# DeepSeek's pricing page, September 2026.
_RETIRED: Mapping[str, tuple[int, str]] = {
    "deepseek-chat": (logging.WARNING, _OFF),
    "deepseek-reasoner": (logging.WARNING, _OFF),
    "deepseek-v4-flash": (logging.INFO, _ROUTED),
    "deepseek-v4-flash-vision-exp": (logging.INFO, _ROUTED),
}

# What was said once in this process and need not be said again.
_said: set[tuple[Vendor, str]] = set()


def model_from_spec(spec: object) -> BaseChatModel:
    """Return the model that `"vendor:name"` names, for example `"offline:demo"`.

    Raises:
        ConfigurationError: it is not of that form, or as `chat_model`.
    """
    vendor, separator, name = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if not (vendor and separator and name):
        raise ConfigurationError(f'model spec must be "vendor:name", for example "offline:demo", got {spec!r}')
    return chat_model(vendor, name)


def chat_model(vendor: Vendor | str, name: str, *, fallback: str | None = None) -> BaseChatModel:
    """Return a chat model of this vendor.

    The key comes from the vendor's environment variable, for example `DEEPSEEK_API_KEY` or, in short,
    `DEEPSEEK_KEY`. The address is the vendor's own, unless `<VENDOR>_BASE_URL` (`DEEPSEEK_BASE_URL`,
    `ALIYUN_BASE_URL`, ...) or the vendor's own variable for it (`DEEPSEEK_API_BASE`, `OPENAI_API_BASE`,
    `DASHSCOPE_BASE_URL`, `ARK_BASE_URL`, `ZHIPUAI_BASE_URL`, `OLLAMA_HOST`) says another. A key goes to
    its own vendor only: OpenAI's variables change nothing for the others.

    Args:
        vendor: who serves it.
        name: the vendor's name of the model.
        fallback: `"offline"` gives the offline model when the vendor's key is missing, with one line on
            stderr.

    Raises:
        UnknownVendor: no such vendor; the message names the nearest.
        ConfigurationError: the name is empty, the key is missing, the address is none, or a package is missing.
    """
    vendor = _known(vendor)
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"the model name must be a non-empty str, got {name!r}")
    if fallback not in (None, Vendor.OFFLINE):
        raise ConfigurationError(f'fallback must be "offline" or None, got {fallback!r}')
    if vendor is Vendor.OFFLINE:
        return _offline(name)
    if vendor is Vendor.OLLAMA:
        return _ollama(name)
    key = _key(vendor)
    if key is None and fallback is not None:
        _say_once(vendor, _missing(vendor))
        return _offline("demo")
    return _hosted(vendor, name, key)


def given_model(model: BaseChatModel) -> BaseChatModel:
    """Return the model to use for one that a user made: a `ChatDeepSeek` repaired, others as they are.

    See `regnexe.models.deepseek.repaired`.
    """
    # Without its module loaded there is no instance of the class; loading it costs half a second.
    if "langchain_deepseek" not in sys.modules:
        return _told_if_deepseek(model)
    from regnexe.models.deepseek import repaired

    return _told_if_deepseek(repaired(model))


def _told_if_deepseek(model: BaseChatModel) -> BaseChatModel:
    address = urlsplit(str(getattr(model, "openai_api_base", None) or "")).hostname or ""
    if address.endswith("deepseek.com") and not hasattr(model, "api_base"):
        logger.warning(
            "%s loses what DeepSeek's models think, and DeepSeek then refuses tool loops; use "
            "with_default_model(Vendor.DEEPSEEK, ...) or ChatDeepSeek",
            type(model).__name__,
        )
    return model


def _key(vendor: Vendor) -> str | None:
    for variable in _HOSTED[vendor].key_variables:
        key = os.environ.get(variable, "").strip()
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            # Not shown, and not left to the HTTP client, whose error would show it.
            raise ConfigurationError(f"the value of {variable} is no key: it has spaces or special characters in it")
        if key:
            return key
    return None


def _missing(vendor: Vendor) -> str:
    standard, *others = _HOSTED[vendor].key_variables
    return f"no key for {vendor.value}: set the environment variable {standard} (or {', '.join(others)})"


def _say_once(vendor: Vendor, missing: str) -> None:
    if (vendor, "fallback") not in _said:
        _said.add((vendor, "fallback"))
        print(f"regnexe: {missing}; the offline model answers until then", file=sys.stderr)


def _offline(name: str) -> BaseChatModel:
    from regnexe.models.offline import OfflineChatModel

    return OfflineChatModel(model_name=name)


def _hosted(vendor: Vendor, name: str, key: str | None) -> BaseChatModel:
    if key is None:
        raise ConfigurationError(
            f'{_missing(vendor)}, or use with_default_model(Vendor.OFFLINE, "demo") to try things out'
        )
    hosted = _HOSTED[vendor]
    base_url = _base_url(vendor, hosted.base_url_variables) or hosted.base_url
    arguments: dict[str, Any] = {"model": name, "api_key": key, "base_url": base_url, "stream_usage": True}
    if vendor is Vendor.DEEPSEEK:
        from regnexe.models.deepseek import DeepSeekChatModel

        _tell_retired(name)
        return DeepSeekChatModel(**arguments)
    from regnexe.models.failures import ModelSource
    from regnexe.models.hosted import HostedChatModel

    source = ModelSource(
        vendor=hosted.label,
        model=name,
        base_url=base_url,
        key_variables=hosted.key_variables,
        base_url_variable=f"{vendor.value.upper()}_BASE_URL",
        key=key,
    )
    if vendor is not Vendor.OPENAI:
        arguments["openai_proxy"] = None
    return HostedChatModel(**arguments, use_responses_api=False, vendor=vendor.value, source=source)


def _base_url(vendor: Vendor, conventional: Sequence[str]) -> str | None:
    for variable in (f"{vendor.value.upper()}_BASE_URL", *conventional):
        address = os.environ.get(variable, "").strip()
        if address and (fault := fault_of(address)):
            raise ConfigurationError(f"{variable} {fault}, got {shown(address)!r}")
        if address:
            return address
    return None


def _tell_retired(name: str) -> None:
    level, text = _RETIRED.get(name, (0, ""))
    if level and (Vendor.DEEPSEEK, name) not in _said:
        _said.add((Vendor.DEEPSEEK, name))
        logger.log(level, text.format(name=name))


def _ollama(name: str) -> BaseChatModel:
    try:
        from langchain_ollama import ChatOllama  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ConfigurationError("Ollama needs the package langchain-ollama: pip install 'regnexe[ollama]'") from error
    model: BaseChatModel = ChatOllama(model=name, base_url=_base_url(Vendor.OLLAMA, ()))
    return model


def _known(vendor: Vendor | str) -> Vendor:
    known = [member.value for member in Vendor]
    try:
        return Vendor(vendor.lower() if isinstance(vendor, str) else vendor)
    except ValueError:
        near = difflib.get_close_matches(str(vendor).lower(), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known vendors: {', '.join(known)}"
        raise UnknownVendor(f"unknown vendor {vendor!r}; {hint}", vendor=str(vendor), known=known) from None
