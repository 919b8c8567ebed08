"""Alembic's scripts. Migrations only add; each runs in a real transaction with a lock timeout."""
