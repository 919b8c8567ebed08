"""Adapters to what starts worker processes."""
