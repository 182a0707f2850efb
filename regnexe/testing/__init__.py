"""What tests of an application need: a chat model that follows a script and checks what it is sent."""

from __future__ import annotations

from regnexe.testing.recording import RecordingListener
from regnexe.testing.scripted import InvalidHistory, ScriptedChatModel, ScriptedRequest, ScriptExhausted, tool_call

__all__ = [
    "InvalidHistory",
    "RecordingListener",
    "ScriptExhausted",
    "ScriptedChatModel",
    "ScriptedRequest",
    "tool_call",
]
