"""Sources of eviction notices."""
