"""The chat models that Regnexe can use, and how they are made."""
