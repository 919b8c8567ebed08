"""Real processes, real signals: the warm parent, fresh interpreters, and children."""
