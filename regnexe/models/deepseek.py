"""DeepSeek's models, made right on the wire.

LangChain's `ChatDeepSeek` drops what the model thought from the history that it sends, which thinking mode
refuses, and sends tool choices and contents that DeepSeek does not take. What is added here overrides
methods with private names; `tests/test_models.py` says so in plain words if they move.
"""

from __future__ import annotations

import logging
from typing import Any, Self

from langchain_core.language_models import BaseChatModel, LanguageModelInput, ModelProfile
from langchain_deepseek import ChatDeepSeek
from pydantic import SecretStr, model_validator

from regnexe.models.deepseek_wire import fit_messages, fit_payload
from regnexe.models.failures import ModelSource
from regnexe.models.guarded import GuardedModel
from regnexe.models.openai_clients import forget_openai_settings, on_every_loop

__all__ = ["MODELS", "DeepSeekChatModel", "repaired"]

logger = logging.getLogger("regnexe")

MODELS = ("deepseek-flash", "deepseek-v4-pro")
"""The names that the API listed in November 2026."""

# What the packaged profiles get wrong for agents: a JSON schema as response format is refused, and images
# are taken only in what the user says.
_CORRECTIONS: ModelProfile = {
    "structured_output": False,
    "image_tool_message": False,
    "pdf_inputs": False,
    "pdf_tool_message": False,
}
# For a name that no profile is known of, as behind a gateway. A profile given to the model says otherwise.
_UNKNOWN: ModelProfile = {"image_inputs": False, "audio_inputs": False, "video_inputs": False}


class DeepSeekChatModel(GuardedModel, ChatDeepSeek):
    """A `ChatDeepSeek` that keeps the rules of thinking mode, counts streams, and says what to do on failures.

    It sends `reasoning_content` back where thinking mode wants it, text as strings, and a tool choice that
    thinking mode takes. An image for a model that takes none is refused before the call with
    `ModelCallRefused`; in later turns a notice stands in its place. What it does is decided for each
    request, so `model.bind(extra_body={"thinking": {"type": "disabled"}})` works as well.
    """

    stream_usage: bool | None = True
    use_responses_api: bool | None = False

    @model_validator(mode="after")
    def validate_environment(self) -> Self:
        """Make the clients, without what OpenAI's environment variables say."""
        if self.api_key is None:
            self.api_key = SecretStr("none")  # or the client would send OpenAI's key
        made, made_async = not self.client, not self.async_client
        super().validate_environment()  # type: ignore[operator]  # pydantic's decorator hides that it is a method
        if made:
            forget_openai_settings(self.root_client, self.default_headers)
        if made_async:
            self._serve_every_loop()
            forget_openai_settings(self.root_async_client, self.default_headers)
        return self

    def _serve_every_loop(self) -> None:
        if self.root_async_client is not None and self.http_async_client is None:
            self.root_async_client = on_every_loop(self.root_async_client)
            self.async_client = self.root_async_client.chat.completions

    def _resolve_model_profile(self) -> ModelProfile | None:
        return {**_UNKNOWN, **(super()._resolve_model_profile() or {}), **_CORRECTIONS}

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        messages = fit_messages(
            self._convert_input(input_).to_messages(),
            model=self.model_name,
            takes_images=(self.profile or {}).get("image_inputs") is not False,
        )
        payload: dict[str, Any] = super()._get_request_payload(messages, stop=stop, **kwargs)
        fit_payload(payload, messages, model=self.model_name)
        return payload

    def _source(self) -> ModelSource:
        return ModelSource(
            vendor="DeepSeek",
            model=self.model_name,
            base_url=self.api_base,
            key_variables=("DEEPSEEK_API_KEY", "DEEPSEEK_KEY"),
            base_url_variable="DEEPSEEK_BASE_URL",
            models=MODELS,
            key=self.api_key.get_secret_value() if self.api_key else "",
        )


def repaired(model: BaseChatModel) -> BaseChatModel:
    """Return a `ChatDeepSeek` as a `DeepSeekChatModel` with the same settings and the same clients.

    Only what was left open changes: usage in streams is asked for, the packaged profile is corrected, and
    connections that LangChain made serve every event loop. Attributes that are set on the given model
    later have no effect. A subclass of `ChatDeepSeek` has ways of its own, so it is left alone, with a
    warning in the log. Others are returned as they are.
    """
    if isinstance(model, DeepSeekChatModel) or not isinstance(model, ChatDeepSeek):
        return model
    if type(model) is not ChatDeepSeek:
        logger.warning(
            "%s is used as it is. ChatDeepSeek does not send reasoning_content back, so DeepSeek may refuse its "
            "tool loops; derive it from regnexe.models.deepseek.DeepSeekChatModel instead",
            type(model).__name__,
        )
        return model
    fields = dict(model.__dict__)
    if fields.get("stream_usage") is None:
        fields["stream_usage"] = True
    if fields.get("use_responses_api") is None:
        fields["use_responses_api"] = False
    packaged = model._resolve_model_profile()
    # Not as arguments: `api_key` is one field's name and another's alias.
    twin = DeepSeekChatModel.model_construct(_fields_set=set(model.model_fields_set))
    twin.__dict__.update(fields)
    if model.profile == packaged:
        twin.profile = twin._resolve_model_profile()
    twin._serve_every_loop()
    logger.info("ChatDeepSeek %r is used as a DeepSeekChatModel with the same settings", model.model_name)
    return twin
