"""Search: proposals and pruning by Optuna, on a study in memory; and the mirror, a study for people to look at."""
