"""The life of a run, on top of LangGraph and deepagents."""
