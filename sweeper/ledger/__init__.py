"""The ledger: Postgres schema `sweeper`, the only truth. One guarded, replay-safe statement per transition."""
