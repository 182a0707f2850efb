"""What stand-ins for models share: they know the whole reply at once, and give it whole or in parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from regnexe.models.chunks import message_chunks

__all__ = ["WholeReplyModel"]


class WholeReplyModel(BaseChatModel):
    """A chat model whose subclass gives whole replies, by `_reply` and, where it must wait for one, `_areply`."""

    @abstractmethod
    def _reply(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        """Return the reply; `kwargs` holds what was bound, such as `tools` and `tool_choice`."""

    async def _areply(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        return self._reply(messages, stop, kwargs)

    def _by_word(self) -> bool:
        """Return whether text is streamed word by word, or at once."""
        return True

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: Any = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return this model with tools bound, in OpenAI's format."""
        formatted = [convert_to_openai_tool(tool) for tool in tools]
        chosen = {} if tool_choice is None else {"tool_choice": tool_choice}
        return super().bind(tools=formatted, **chosen, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages, stop, kwargs))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=await self._areply(messages, stop, kwargs))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in message_chunks(self._reply(messages, stop, kwargs), by_word=self._by_word()):
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in message_chunks(await self._areply(messages, stop, kwargs), by_word=self._by_word()):
            yield ChatGenerationChunk(message=chunk)
