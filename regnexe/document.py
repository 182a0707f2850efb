"""A whole conversation as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from langchain_core.messages import AnyMessage
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from regnexe.errors import InvalidDocument
from regnexe.identity import SessionKey
from regnexe.json_values import from_json, to_json
from regnexe.results import PendingApproval, RunStatus, Usage

__all__ = ["Session"]

SCHEMA_VERSION: Literal[1] = 1

# How many things that are wrong with a document its exception tells.
_TOLD = 5


def _read_message(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Read a message, also one whose token counts are incomplete: providers send such, and the log keeps them."""
    try:
        return read(value)
    except ValidationError:
        if not isinstance(value, dict) or not isinstance(counts := value.get("usage_metadata"), dict):
            raise
        message = read({**value, "usage_metadata": None})
        message.usage_metadata = counts
        return message


def _whole(value: Any) -> Any:
    """Return what a dataclass holds as JSON, with the fields of a newer version that pydantic left on it."""
    return [_whole(part) for part in value] if isinstance(value, list) else to_json(vars(value))


_AsJson = PlainSerializer(to_json, when_used="json")
_Whole = PlainSerializer(_whole, when_used="json")


class Session(BaseModel):
    """One conversation: whose it is, every message, and where it stands.

    `model_dump_json()` and `model_validate_json()` take it to JSON and back, equal to what it was; fields that
    this version does not know survive the way. The JSON is plain, and fits into Postgres' JSONB: what JSON has
    no form for, in artifacts and other free-form parts, and text with NUL or lone surrogates, is written as
    `{"$regnexe": kind, "value": …}`. `regnexe.json_values.to_json` says what is kept so: bytes, infinities,
    tuples, sets, dates and some more. An object of another class is not: it becomes the dict of its fields, or
    its repr, and a subclass of a message class becomes that class.

    Attributes:
        key: whose conversation this is.
        messages: the complete log, oldest first.
        files: the agent's virtual files, path to content.
        todos: the agent's open plan, as its planning tool keeps it.
        status: how the latest run ended.
        pending: what waits for a decision.
        usage: what the latest run used.
        updated_at: when the latest run ended, in UTC.
    """

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, Annotated[Any, _AsJson]] = Field(init=False)

    schema_version: Literal[1] = SCHEMA_VERSION
    key: Annotated[SessionKey, _Whole]
    messages: Annotated[list[Annotated[AnyMessage, WrapValidator(_read_message)]], _AsJson] = Field(
        default_factory=list
    )
    files: Annotated[dict[str, Any], _AsJson] = Field(default_factory=dict)
    todos: Annotated[list[Any], _AsJson] = Field(default_factory=list)
    status: RunStatus = RunStatus.COMPLETED
    pending: Annotated[list[PendingApproval], _Whole] = Field(default_factory=list)
    usage: Annotated[Usage, _Whole] = Field(default_factory=Usage)
    updated_at: datetime | None = None
    metadata: Annotated[dict[str, Any], _AsJson] = Field(default_factory=dict)

    @classmethod
    def model_validate_json(
        cls, json_data: str | bytes | bytearray | memoryview | Mapping[str, Any], **options: Any
    ) -> Self:
        """Return the session that `model_dump_json()` wrote.

        Args:
            json_data: the JSON; or the dict that a database driver has made of it, as for a JSONB column.
            options: pydantic's own.

        Raises:
            InvalidDocument: it is damaged, no session, or written by a newer version; the message says which.
        """
        try:
            return super().model_validate_json(_as_text(json_data), **options)
        except ValidationError as error:
            raise InvalidDocument(_what_is_wrong(error)) from error
        except (RecursionError, TypeError, ValueError) as error:
            raise InvalidDocument(f"the session document cannot be read: {type(error).__name__}: {error}") from error

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any, info: ValidationInfo) -> Any:
        return from_json(data) if info.mode == "json" else data


def _as_text(data: Any) -> Any:
    if isinstance(data, Mapping):
        return json.dumps(dict(data))
    return bytes(data) if isinstance(data, memoryview) else data


def _what_is_wrong(error: ValidationError) -> str:
    found = error.errors(include_url=False)
    first = found[0]
    if first["type"] in ("json_invalid", "json_type", "string_unicode"):
        return f"the session document is not valid JSON, or was cut off: {first['msg']}"
    if first["loc"] == () and first["type"] == "model_type":
        return f"a session document is a JSON object, got {type(first['input']).__name__}"
    for problem in found:
        if problem["loc"] == ("schema_version",):
            return (
                f"the session document has schema_version {problem['input']!r}, and this version of Regnexe reads "
                f"{SCHEMA_VERSION}; if a newer version wrote it, upgrade Regnexe to read it"
            )
    told = [f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg']}" for problem in found[:_TOLD]]
    more = f" (and {len(found) - _TOLD} more)" if len(found) > _TOLD else ""
    return f"the session document is not valid: {'; '.join(told)}{more}"
