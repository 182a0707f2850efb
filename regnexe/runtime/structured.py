"""Answers in a form, from models that cannot be made to call the form's tool: thinking ones are only asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage

from regnexe.errors import StructuredAnswerMissing
from regnexe.messages import text_of
from regnexe.runtime.outcome import failure_of

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ModelResponse

__all__ = ["lacks_form", "missing_form", "reminder"]


def lacks_form(response: ModelResponse[Any], response_format: Any) -> bool:
    """Return whether this is the end of a run without the structured answer that was asked for.

    Not when it is the end for another reason, which says more: broken calls, or a limit before the first word.
    """
    if response_format is None or response.structured_response is not None:
        return False
    calls = any(isinstance(message, AIMessage) and message.tool_calls for message in response.result)
    return not calls and failure_of(response.result) is None


def reminder(response_format: Any) -> HumanMessage:
    """Return what the model is told that answered in plain text; it is sent, and not stored."""
    return HumanMessage(f"Give this answer by calling {_tools(response_format)}, not in plain text.")


def missing_form(response: ModelResponse[Any], response_format: Any) -> StructuredAnswerMissing:
    """Return the exception for a model that did it again."""
    said = next((message for message in reversed(response.result) if isinstance(message, AIMessage)), None)
    return StructuredAnswerMissing(
        f"the model answered in plain text instead of calling {_tools(response_format)}, and did so again when told; "
        "its text is in the exception's `text`. Ask for the form in the system prompt, use another model, or one "
        "that does not think: a thinking model cannot be made to call a tool",
        text="" if said is None else text_of(said),
    )


def _tools(response_format: Any) -> str:
    strategy = response_format
    if not hasattr(strategy, "schema_specs"):
        strategy = ToolStrategy(getattr(response_format, "schema", response_format))
    return "the tool " + " or ".join(spec.name for spec in strategy.schema_specs)
