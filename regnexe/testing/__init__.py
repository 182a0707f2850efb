"""What tests of an application need: scripted models, and a local DeepSeek server."""

from __future__ import annotations

from regnexe.testing.deepseek.server import DeepSeekServer
from regnexe.testing.recording import RecordingListener
from regnexe.testing.scripted import InvalidHistory, ScriptedChatModel, ScriptedRequest, ScriptExhausted, tool_call

__all__ = [
    "DeepSeekServer",
    "InvalidHistory",
    "RecordingListener",
    "ScriptExhausted",
    "ScriptedChatModel",
    "ScriptedRequest",
    "tool_call",
]
