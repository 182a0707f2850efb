"""Where thread state lives, and who may write it."""
