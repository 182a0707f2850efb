"""A whole conversation as one JSON document."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from langchain_core.messages import AnyMessage
from pydantic import BaseModel, ConfigDict, Field

from regnexe.identity import SessionKey
from regnexe.results import PendingApproval, RunStatus, Usage

__all__ = ["Session"]


class Session(BaseModel):
    """One conversation: whose it is, every message, and where it stands.

    `model_dump_json()` and `model_validate_json()` take it to JSON and back; fields that this version
    does not know survive the way.

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

    schema_version: Literal[1] = 1
    key: SessionKey
    messages: list[AnyMessage] = Field(default_factory=list)
    files: dict[str, Any] = Field(default_factory=dict)
    todos: list[Any] = Field(default_factory=list)
    status: RunStatus = RunStatus.COMPLETED
    pending: list[PendingApproval] = Field(default_factory=list)
    usage: Usage = Field(default_factory=Usage)
    updated_at: datetime | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
