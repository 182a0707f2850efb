"""What a model is told that its answers in a form are called."""

from __future__ import annotations

from typing import Any

from regnexe.errors import ConfigurationError

__all__ = ["schema_names"]


def schema_names(schema: Any) -> list[str]:
    """Return the names under which a model is told of the schema.

    Raises:
        ConfigurationError: it is no schema that LangChain takes.
    """
    from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy

    if isinstance(schema, ProviderStrategy):
        return []
    inner = schema.schema if isinstance(schema, AutoStrategy | ToolStrategy) else schema
    try:
        return [spec.name for spec in ToolStrategy(inner).schema_specs]
    except Exception as error:
        raise ConfigurationError(
            "with_response_format takes a pydantic model, a dataclass, a TypedDict, a JSON schema with a title, or a "
            f"ToolStrategy or ProviderStrategy around one, got {schema!r:.200}: {error}"
        ) from error
