"""The example's training with every optimizer step counted, so that `chaos.py` can tell what was trained twice.

One byte a step goes to `$DIGITS_STEPS/<trial number>`, from whichever process trains; nothing else is different.
"""

from __future__ import annotations

import os
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from torch.optim.optimizer import register_optimizer_step_post_hook
from train import train


def count_step(*_: object) -> None:
    """Append one byte; appends of one byte are whole or not there, whenever the process is killed."""
    path = Path(os.environ["DIGITS_STEPS"]) / str(HydraConfig.get().job.num)
    with path.open("ab", buffering=0) as file:
        file.write(b".")


if __name__ == "__main__":
    register_optimizer_step_post_hook(count_step)
    train()
