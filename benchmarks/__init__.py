"""Measurements of what Regnexe costs or saves."""
