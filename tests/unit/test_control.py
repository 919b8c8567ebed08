"""The page of memory that a worker and its child share."""

from __future__ import annotations

import os

from sweeper.model.control import PAGE_BYTES, ControlPage


def test_what_one_side_writes_the_other_side_reads() -> None:
    descriptor = os.memfd_create("control")
    os.ftruncate(descriptor, PAGE_BYTES)
    worker, child = ControlPage(descriptor), ControlPage(descriptor)
    assert (worker.step, worker.epoch, worker.safe_points, worker.stateful, child.inbox) == (0, 0, 0, False, False)

    child.publish(step=2**40, epoch=3, safe_points=7)
    child.mark_stateful()
    assert (worker.step, worker.epoch, worker.safe_points, worker.stateful) == (2**40, 3, 7, True)

    worker.raise_inbox()
    assert child.inbox
    child.clear_inbox()
    assert not worker.inbox
    worker.close()
    child.close()
    os.close(descriptor)
