"""One agent with several tools; the model calls them side by side and answers from all of them.

Run it with `python examples/readme/01_multi_tool.py`. It uses DeepSeek when `DEEPSEEK_API_KEY` is set; without a key it
needs no network either.
"""

import asyncio
import sys
import time
from pathlib import Path

from regnexe import ConsoleEventListener, RegnexeAgentBuilder, Vendor, agent_tool

# The sample plugin is in the folder plugins/weather of this repository.
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "weather"))
from weather_plugin import WeatherPlugin

SECONDS = 0.5


@agent_tool
async def sunrise(city: str) -> str:
    """Get the time of sunrise in a city.

    Args:
        city: Name of the city.
    """
    await asyncio.sleep(SECONDS)  # as a slow service would
    return f"{city}: sunrise at 06:42."


# `@agent_tool` is needed inside a plugin class only; a function with a docstring is enough for with_tool.
def running_pace(distance_km: float, minutes: float) -> str:
    """Work out the running pace for a distance and a time.

    Args:
        distance_km: Distance in kilometres.
        minutes: Time in minutes.
    """
    time.sleep(SECONDS)  # a synchronous tool runs in a thread, so nothing else waits for it
    return f"{minutes / distance_km:.1f} minutes per km."


async def main() -> None:
    async with (
        RegnexeAgentBuilder()
        .with_default_model(Vendor.DEEPSEEK, "deepseek-flash", fallback="offline")
        .with_plugin(WeatherPlugin())
        .with_tool(sunrise, running_pace)
        .with_event_listener(ConsoleEventListener(token_usage=False))
        .build()
    ) as agent:
        result = await agent.ainvoke(
            "Check the weather in Beijing and the sunrise in Beijing, "
            "and work out the running pace for 10 km in 55 minutes.",
            app_id="readme",
            user_id="reader",
            session_id="01-multi-tool",
        )
    print()
    print("status:", result.status)
    print("answer:", result.final_text)
    print(f"used: {result.usage.model_calls} model calls, {result.usage.tool_calls} tool calls")


if __name__ == "__main__":
    asyncio.run(main())
