"""What an agent can do: plugins and tools, written in several ways and all ending in one form."""
