"""Checkpoints, outcomes and ownership in the object store."""
