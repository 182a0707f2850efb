"""Model vendors: where they are, which variable holds the key, and how to make a chat model of theirs."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from regnexe.errors import ConfigurationError, UnknownVendor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.language_models import BaseChatModel

__all__ = ["Vendor", "chat_model", "model_from_spec"]


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
    """A vendor that is reached over the network with a key."""

    base_url: str
    key_variables: tuple[str, ...]


# As the vendors' own pages and their users' configurations had them in November 2026.
_HOSTED: Mapping[Vendor, _Hosted] = {
    Vendor.ALIYUN: _Hosted("https://dashscope.aliyuncs.com/compatible-mode/v1", ("DASHSCOPE_API_KEY", "ALIYUN_KEY")),
    Vendor.DEEPSEEK: _Hosted("https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY", "DEEPSEEK_KEY")),
    Vendor.DOUBAO: _Hosted("https://ark.cn-beijing.volces.com/api/v3", ("ARK_API_KEY", "DOUBAO_KEY")),
    Vendor.HUNYUAN: _Hosted("https://tokenhub.tencentmaas.com/v1", ("TOKENHUB_API_KEY", "HUNYUAN_KEY")),
    Vendor.LINGYI: _Hosted("https://api.lingyiwanwu.com/v1", ("YI_API_KEY", "LINGYI_KEY")),
    Vendor.MINIMAX: _Hosted("https://api.minimaxi.com/v1", ("MINIMAX_API_KEY", "MINIMAX_KEY")),
    Vendor.MOONSHOT: _Hosted("https://api.moonshot.cn/v1", ("MOONSHOT_API_KEY", "MOONSHOT_KEY")),
    Vendor.OPENAI: _Hosted("https://api.openai.com/v1", ("OPENAI_API_KEY", "OPENAI_KEY")),
    Vendor.QIANFAN: _Hosted("https://qianfan.baidubce.com/v2", ("QIANFAN_API_KEY", "QIANFAN_KEY")),
    Vendor.STEPFUN: _Hosted("https://api.stepfun.com/v1", ("STEPFUN_API_KEY", "STEPFUN_KEY")),
    Vendor.ZHIPU: _Hosted("https://open.bigmodel.cn/api/paas/v4", ("ZHIPUAI_API_KEY", "ZHIPU_KEY")),
}


def model_from_spec(spec: object) -> BaseChatModel:
    """Return the model that `"vendor:name"` names, for example `"offline:demo"`.

    Raises:
        ConfigurationError: it is not of that form, or as `chat_model`.
    """
    vendor, separator, name = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if not (vendor and separator and name):
        raise ConfigurationError(f'model spec must be "vendor:name", for example "offline:demo", got {spec!r}')
    return chat_model(vendor, name)


def chat_model(vendor: Vendor | str, name: str) -> BaseChatModel:
    """Return a chat model of this vendor.

    Raises:
        UnknownVendor: no such vendor; the message names the nearest.
        ConfigurationError: the name is empty, the key is missing, or a package is.
    """
    vendor = _known(vendor)
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"the model name must be a non-empty str, got {name!r}")
    if vendor is Vendor.OFFLINE:
        from regnexe.models.offline import OfflineChatModel

        return OfflineChatModel(model_name=name)
    if vendor is Vendor.OLLAMA:
        return _ollama(name)
    return _hosted(vendor, name)


def _hosted(vendor: Vendor, name: str) -> BaseChatModel:
    hosted = _HOSTED[vendor]
    key = next((os.environ[variable] for variable in hosted.key_variables if os.environ.get(variable)), None)
    if key is None:
        standard, short = hosted.key_variables
        raise ConfigurationError(
            f"no key for {vendor.value}: set the environment variable {standard} (or {short}), "
            f'or use with_default_model(Vendor.OFFLINE, "demo") to try things out'
        )
    base_url = os.environ.get(f"{vendor.value.upper()}_BASE_URL") or hosted.base_url
    arguments: dict[str, Any] = {"model": name, "api_key": key, "base_url": base_url, "stream_usage": True}
    if vendor is Vendor.DEEPSEEK:
        from langchain_deepseek import ChatDeepSeek

        return ChatDeepSeek(**arguments)
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(**arguments)


def _ollama(name: str) -> BaseChatModel:
    try:
        from langchain_ollama import ChatOllama  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ConfigurationError("Ollama needs the package langchain-ollama: pip install 'regnexe[ollama]'") from error
    model: BaseChatModel = ChatOllama(model=name, base_url=os.environ.get("OLLAMA_BASE_URL"))
    return model


def _known(vendor: Vendor | str) -> Vendor:
    known = [member.value for member in Vendor]
    try:
        return Vendor(vendor.lower() if isinstance(vendor, str) else vendor)
    except ValueError:
        near = difflib.get_close_matches(str(vendor).lower(), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known vendors: {', '.join(known)}"
        raise UnknownVendor(f"unknown vendor {vendor!r}; {hint}", vendor=str(vendor), known=known) from None
