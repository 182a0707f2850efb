"""What a session remembers: within a process, across restarts, and when it grows long.

Run it with `python examples/readme/07_three_layer_memory.py`. It uses DeepSeek when `DEEPSEEK_API_KEY` is set; without
a key it needs no network either.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from regnexe import (
    AbstractEventListener,
    AgentResult,
    Event,
    EventType,
    LlmStart,
    RegnexeAgentBuilder,
    Vendor,
    chat_model,
)

# The sample plugin is in the folder plugins/weather of this repository.
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "weather"))
from weather_plugin import WeatherPlugin

MODEL = chat_model(Vendor.DEEPSEEK, "deepseek-flash", fallback="offline")

FIRST = "Check today's weather in Beijing and tell me if it's good for outdoor running."
SECOND = (
    "Based on the weather you just looked up, what should I keep in mind while running? "
    "No need to check the weather again."
)


async def within_a_process() -> None:
    print("== The default checkpointer: in memory ==")
    agent = RegnexeAgentBuilder().with_model(MODEL).with_plugin(WeatherPlugin()).build()

    # Turn 1: the tool is called.
    result1 = await agent.ainvoke(FIRST, app_id="readme", user_id="reader", session_id="07-memory-a")
    show("Turn 1", result1)

    # Turn 2: the model knows the weather already, and calls no tool.
    result2 = await agent.ainvoke(SECOND, app_id="readme", user_id="reader", session_id="07-memory-a")
    show("Turn 2", result2)

    # Another session_id is a fresh thread without any history.
    other = await agent.ainvoke(SECOND, app_id="readme", user_id="reader", session_id="07-memory-b")
    show("Another session", other)

    await agent.aclose()


async def across_restarts(directory: str) -> None:
    print("== AsyncSqliteSaver: the second turn with a new agent, on the file opened anew ==")
    for turn, text in ((1, FIRST), (2, SECOND)):
        async with AsyncSqliteSaver.from_conn_string(f"{directory}/sessions.db") as checkpointer:
            agent = (
                RegnexeAgentBuilder()
                .with_model(MODEL)
                .with_plugin(WeatherPlugin())
                .with_checkpointer(checkpointer)
                .build()
            )
            result = await agent.ainvoke(text, app_id="readme", user_id="reader", session_id="07-memory-a")
            await agent.aclose()
        show(f"Turn {turn}", result)


class SentMessages(AbstractEventListener):
    """Counts the messages that the latest model call was sent."""

    count = 0

    async def on_event(self, event_type: EventType, name: str, data: Event) -> None:
        """Take one event."""
        if isinstance(data, LlmStart):
            self.count = len(data.messages)


async def when_it_grows_long() -> None:
    print("== SummarizationMiddleware: the log keeps every message, the model is sent fewer ==")
    summ = SummarizationMiddleware(
        model=MODEL,
        backend=StateBackend(),
        trigger=("messages", 8),  # to see it soon; ("tokens", 60_000) is more like it in a service
        keep=("messages", 4),
    )
    sent = SentMessages()
    agent = (
        RegnexeAgentBuilder()
        .with_model(MODEL)
        .with_plugin(WeatherPlugin())
        .with_middleware(summ)
        .with_event_listener(sent)
        .build()
    )
    for city in ("Beijing", "Paris", "Tokyo", "London"):
        result = await agent.ainvoke(
            f"Check today's weather in {city}.", app_id="readme", user_id="reader", session_id="07-memory-c"
        )
        print(f"{city}: {len(result.session.messages)} messages in the log, {sent.count} sent to the model")
    await agent.aclose()


def show(title: str, result: AgentResult) -> None:
    print(f"{title}, thread {result.thread_id}:")
    for message in result.messages:
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        asked = ", ".join(f"{call['name']}({call['args']})" for call in calls)
        print(f"  {type(message).__name__}: {message.text or asked}")
    print()


async def main() -> None:
    await within_a_process()
    with tempfile.TemporaryDirectory() as directory:
        await across_restarts(directory)
    await when_it_grows_long()


if __name__ == "__main__":
    asyncio.run(main())
