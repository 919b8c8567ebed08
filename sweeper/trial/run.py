"""`run = sweeper.resume(...)`: the only thing a training script needs."""
