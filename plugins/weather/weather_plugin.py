"""A sample plugin: one asynchronous tool, offline, with made-up figures."""

from __future__ import annotations

from regnexe import agent_tool, plugin

__all__ = ["WeatherPlugin"]

# Invented once and fixed, so that examples and tests read the same every day.
_WEATHER = {
    "Beijing": "sunny, 22 C, excellent air quality.",
    "Shanghai": "light rain, 19 C, good air quality.",
    "Guangzhou": "cloudy, 27 C, moderate air quality.",
    "Shenzhen": "thunderstorms, 28 C, good air quality.",
    "Hangzhou": "fog, 17 C, moderate air quality.",
    "Chengdu": "overcast, 18 C, moderate air quality.",
    "London": "drizzle, 12 C, good air quality.",
    "New York": "windy, 15 C, good air quality.",
    "Paris": "partly cloudy, 16 C, good air quality.",
    "Tokyo": "clear, 20 C, excellent air quality.",
}
_OTHER_NAMES = {
    "北京": "Beijing",
    "上海": "Shanghai",
    "广州": "Guangzhou",
    "深圳": "Shenzhen",
    "杭州": "Hangzhou",
    "成都": "Chengdu",
    "伦敦": "London",
    "纽约": "New York",
    "巴黎": "Paris",
    "东京": "Tokyo",
}
_CITIES = {name.casefold(): name for name in _WEATHER} | _OTHER_NAMES


@plugin(id="weather", name="Weather", version="1.0.0")
class WeatherPlugin:
    """Invented weather for a handful of cities, offline; a sample of a plugin folder."""

    @agent_tool
    async def get_weather(self, city: str) -> str:
        """Get today's weather in a city: sky, temperature and air quality.

        Args:
            city: Name of the city, in English or Chinese, for example Beijing or 北京.
        """
        asked = " ".join(city.split())
        name = _CITIES.get(asked.casefold()) or _CITIES.get(asked.removesuffix("市"))
        if name is None:
            return f"{asked or 'This city'}: no data. Known cities: {', '.join(_WEATHER)}."
        return f"{name}: {_WEATHER[name]}"
