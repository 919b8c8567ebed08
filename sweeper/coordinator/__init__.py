"""The coordinator: observe, plan, execute; keeps nothing in memory that matters."""
