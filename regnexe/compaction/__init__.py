"""The view: what a model receives of the log."""
