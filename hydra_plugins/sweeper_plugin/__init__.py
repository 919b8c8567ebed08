"""Hydra insists on this place: a thin shim that imports nothing heavy."""
