"""The real worker and coordinator programs on real Postgres under virtual time, with seeded faults."""
