"""The list of sessions: what an app or a user has, newest first, without reading a conversation."""
