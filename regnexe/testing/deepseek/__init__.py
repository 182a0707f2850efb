"""DeepSeek's chat-completions API as a local server, with its rules, its errors and its faults."""

from __future__ import annotations

from regnexe.testing.deepseek.faults import Fault
from regnexe.testing.deepseek.reply import DeepSeekRequest, Reply, WireCall, wire_call
from regnexe.testing.deepseek.rules import Rules, Wire, estimate_tokens
from regnexe.testing.deepseek.server import DeepSeekServer

__all__ = [
    "DeepSeekRequest",
    "DeepSeekServer",
    "Fault",
    "Reply",
    "Rules",
    "Wire",
    "WireCall",
    "estimate_tokens",
    "wire_call",
]
