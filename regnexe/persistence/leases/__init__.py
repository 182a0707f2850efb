"""One writer per session."""
