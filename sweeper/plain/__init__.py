"""Sweeps of an importable function over plain mappings: no Hydra."""
