"""The Hydra face: launcher, composition, identity, naming."""
