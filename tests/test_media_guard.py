"""Media that the model does not take: refused in the message just sent, a notice in older ones."""

from __future__ import annotations

from typing import Any

import pytest
from deepagents.middleware.unsupported_content import UnsupportedContentMiddleware
from langchain_core.messages import HumanMessage

from regnexe import ModelCallRefused, RegnexeAgentBuilder, RunStatus
from regnexe.testing import ScriptedChatModel

IMAGE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
LOOK: Any = [{"type": "text", "text": "what is this?"}, IMAGE]


def model(*, takes_images: bool) -> ScriptedChatModel:
    scripted = ScriptedChatModel(lambda messages: f"seen {len(messages)}")
    scripted.profile = {"image_inputs": takes_images}
    return scripted


async def test_an_image_for_a_model_that_takes_none_is_refused_before_the_call_and_later_turns_work(saver: Any) -> None:
    blind = model(takes_images=False)
    agent = RegnexeAgentBuilder().with_model(blind).with_checkpointer(saver).build()
    result = await agent.ainvoke(LOOK, session_id="s")
    assert result.status is RunStatus.ERROR
    assert isinstance(result.error, ModelCallRefused)
    assert result.error.kind == "image"
    assert "takes no content of the type 'image'" in str(result.error)
    assert blind.requests == []

    later = await agent.ainvoke("never mind", session_id="s")
    assert later.status is RunStatus.COMPLETED
    sent = [m for m in blind.requests[0].messages if isinstance(m, HumanMessage)]
    assert "image" not in {block["type"] for block in sent[0].content_blocks}
    assert IMAGE in later.session.messages[0].content, "the log keeps the image"


async def test_a_model_that_takes_images_is_sent_them() -> None:
    seeing = model(takes_images=True)
    result = await RegnexeAgentBuilder().with_model(seeing).build().ainvoke(LOOK)
    assert result.status is RunStatus.COMPLETED
    assert "image" in {block["type"] for block in seeing.requests[0].messages[-1].content_blocks}


@pytest.mark.parametrize("name", ["_filter_request", "_is_supported"])
def test_what_the_guard_leans_on_in_deepagents_is_still_there(name: str) -> None:
    assert callable(getattr(UnsupportedContentMiddleware, name, None)), (
        f"deepagents' UnsupportedContentMiddleware has no {name} any more; MediaGuard overrides or calls it"
    )
