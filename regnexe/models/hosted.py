"""Vendors with an OpenAI-compatible chat-completions API."""

from __future__ import annotations

from typing import Any, Self

from langchain_core.language_models.base import LangSmithParams
from langchain_openai import ChatOpenAI
from pydantic import Field, SecretStr, model_validator

from regnexe.models.failures import ModelSource
from regnexe.models.guarded import GuardedModel
from regnexe.models.openai_clients import forget_openai_settings, on_every_loop

__all__ = ["HostedChatModel"]

OPENAI = "openai"


class HostedChatModel(GuardedModel, ChatOpenAI):
    """A `ChatOpenAI` for one vendor: OpenAI's settings stay OpenAI's, and failures say what to do.

    Attributes:
        vendor: the vendor's name, as in `Vendor`.
        source: where calls go, for the texts of failures.
    """

    vendor: str = Field(default=OPENAI, exclude=True)
    source: ModelSource | None = Field(default=None, exclude=True, repr=False)

    @model_validator(mode="after")
    def validate_environment(self) -> Self:
        """Make the clients; without what OpenAI's environment variables say when the vendor is another."""
        organization, made, made_async = self.openai_organization, not self.client, not self.async_client
        own_http = self.http_async_client  # LangChain puts one of its own there for a proxy
        super().validate_environment()  # type: ignore[operator]  # pydantic's decorator hides that it is a method
        if made_async and own_http is None:
            self.root_async_client = on_every_loop(self.root_async_client, proxy=self.openai_proxy)
            self.async_client = self.root_async_client.chat.completions
        if self.vendor != OPENAI:
            self.openai_organization = organization
            for client in (self.root_client if made else None, self.root_async_client if made_async else None):
                if client is not None:
                    forget_openai_settings(client, self.default_headers)
                    client.organization = organization
        return self

    @property
    def lc_secrets(self) -> dict[str, str]:
        """The environment variable that a serialised form names in place of the key."""
        variables = self.source.key_variables if self.source else ()
        return {"openai_api_key": variables[0]} if variables else super().lc_secrets

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = self.vendor
        return params

    def _source(self) -> ModelSource:
        key = self.openai_api_key
        return self.source or ModelSource(
            vendor=self.vendor,
            model=self.model_name,
            base_url=self.openai_api_base or "the vendor",
            key=key.get_secret_value() if isinstance(key, SecretStr) else "",
        )
