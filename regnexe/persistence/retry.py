"""Another try at what failed for a moment only, and an end to trying."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["TRIES", "retried"]

T = TypeVar("T")

TRIES = 3
"""How often something is tried that is not given a time."""


async def retried(call: Callable[[], Awaitable[T]], *, passes: Callable[[BaseException], bool], seconds: float) -> T:
    """Return what the call gives, trying again when it fails with something that passes.

    It is tried again for `seconds`, three times if these are 0. Then the last exception is raised.

    Args:
        call: what to do; it leaves nothing behind when it fails, or does no harm when it is repeated.
        passes: whether an exception is worth another try.
        seconds: see above; a try that has begun within them is waited for.
    """
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, stop_after_delay
    from tenacity import wait_random_exponential as wait

    retrying = AsyncRetrying(
        retry=retry_if_exception(passes),
        stop=stop_after_delay(seconds) if seconds else stop_after_attempt(TRIES),
        # Random, so that processes that met once do not meet again.
        wait=wait(multiplier=0.02, max=0.5),
        reraise=True,
    )

    # It awaits what is made by `async def` only.
    async def once() -> T:
        return await call()

    return await retrying(once)
