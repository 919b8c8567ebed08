"""The child's side: the training surface, its exact resume, and the processes that trials run in."""
