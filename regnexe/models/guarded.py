"""What every model of an OpenAI-compatible vendor gets: failures that say what to do, and whole answers only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata, subtract_usage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from regnexe.errors import AnswerCutOff
from regnexe.messages import call_arguments
from regnexe.models.addresses import shown
from regnexe.models.failures import ModelSource, explained
from regnexe.models.secrets import without

if TYPE_CHECKING:
    from langchain_openai.chat_models.base import BaseChatOpenAI
else:
    # As a base it would bring its own fields in front of those of the class that this is mixed into.
    BaseChatOpenAI = object

__all__ = ["GuardedModel"]

# LangChain adds up what the chunks say. Twice the same reason would make one that nobody knows ("stopstop").
_SAID_ONCE = ("finish_reason", "model_name", "system_fingerprint", "service_tier")
_ADDRESSES = ("api_base", "openai_api_base", "openai_proxy")
_NO_OBJECT = "no JSON object: "


class GuardedModel(BaseChatOpenAI):
    """Goes in front of a LangChain class for chat completions, and guards what its calls give and raise."""

    def _source(self) -> ModelSource:
        raise NotImplementedError

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, shown(value) if name in _ADDRESSES and isinstance(value, str) else value

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        try:
            return super()._generate(*args, **kwargs)
        except Exception as error:
            failure = explained(error, self._source())
        raise failure

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        try:
            return await super()._agenerate(*args, **kwargs)
        except Exception as error:
            failure = explained(error, self._source())
        raise failure

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        watch = _StreamWatch(self._source())
        try:
            for chunk in super()._stream(*args, **kwargs):
                yield watch.seen(chunk)
            watch.ended()
        except Exception as error:
            failure = explained(error, self._source())
        else:
            return
        raise failure

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        watch = _StreamWatch(self._source())
        try:
            async for chunk in super()._astream(*args, **kwargs):
                yield watch.seen(chunk)
            watch.ended()
        except Exception as error:
            failure = explained(error, self._source())
        else:
            return
        raise failure

    def _create_chat_result(self, response: Any, generation_info: dict[str, Any] | None = None) -> ChatResult:
        """Read an answer; arguments that are JSON but no object make an invalid call, not an exception."""
        for choice in getattr(response, "choices", None) or ():
            for call in getattr(choice.message, "tool_calls", None) or ():
                function = getattr(call, "function", None)
                if function is not None and isinstance(function.arguments, str):
                    valid = call_arguments(function.arguments) is not None
                    function.arguments = function.arguments if valid else f"{_NO_OBJECT}{function.arguments}"
        result = super()._create_chat_result(response, generation_info)
        secrets = self._source().secrets()
        result.llm_output = without(result.llm_output, secrets)
        for generation in result.generations:
            _clean(generation, secrets)
            if isinstance(message := generation.message, AIMessage):
                for invalid in message.invalid_tool_calls:
                    invalid["args"] = (invalid["args"] or "").removeprefix(_NO_OBJECT)
                    invalid["error"] = None  # as streamed; LangChain's has the arguments in it again
        return result


def _clean(generation: ChatGeneration, secrets: Sequence[str]) -> None:
    """Take the secrets out of what a provider says about an answer: a finish reason, say, gets into errors."""
    message = generation.message
    generation.generation_info = without(generation.generation_info, secrets)
    for name in ("id", "response_metadata"):
        value = getattr(message, name)
        if (clean := without(value, secrets)) is not value:
            setattr(message, name, clean)
    if isinstance(message, AIMessage) and without(message.usage_metadata, secrets) is not message.usage_metadata:
        message.usage_metadata = None  # a text where a number should be


class _StreamWatch:
    """Looks after one stream: counts its usage once, and notices when it stops before its end."""

    def __init__(self, source: ModelSource) -> None:
        self._vendor = source.vendor
        self._secrets = source.secrets()
        self._finished = False
        self._counted: UsageMetadata | None = None

    def seen(self, chunk: ChatGenerationChunk) -> ChatGenerationChunk:
        """Return the chunk, with only that usage in it which is new.

        DeepSeek puts the usage on the chunk with the finish reason, behind it, or both, others a running
        total on every chunk, and LangChain adds up what it finds.
        """
        _clean(chunk, self._secrets)
        message, info = chunk.message, chunk.generation_info or {}
        if {**message.response_metadata, **info}.get("finish_reason"):
            if self._finished:
                chunk.generation_info = {name: value for name, value in info.items() if name not in _SAID_ONCE}
            self._finished = True
        if isinstance(message, AIMessageChunk) and message.usage_metadata:
            usage, before = message.usage_metadata, self._counted
            self._counted = usage
            if before is not None:
                message.usage_metadata = subtract_usage(usage, before)
        return chunk

    def ended(self) -> None:
        """Refuse an answer that has no end: it is cut off, and half of it is no answer."""
        if not self._finished:
            raise AnswerCutOff(f"{self._vendor}'s answer stopped before its end; send the message again")
