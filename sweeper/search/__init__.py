"""Search: proposals and pruning by Optuna, on a study in memory; and the mirror, a study for people to look at.

The study in memory (`optimizer`) is a projection of rows that may be thrown away at any time: samplers and pruners are
made anew for each question, and what they have to remember goes into rows as plain data (`attributes`). The mirror is
never read back.
"""
