"""Points that people enqueue on the mirrored study (`study.enqueue_trial`): claimed, and answered on their own entry.

Of an entry only the fixed parameters are taken; no other attribute that somebody wrote ever reaches the ledger (SAFE).
It is marked before it is claimed, so that a crash in between leaves it claimed by nobody, and one afterwards leaves a
marked entry that is found again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from sweeper.model.mirror import AskedPoint
from sweeper.search.entries import FIXED_PARAMS
from sweeper.search.mirror_entry import CLAIM, HASH, REASON, bounded
from sweeper.search.mirror_space import MirrorSpace

MOST_AT_ONCE: Final = 50
_REASON_BYTES: Final = 400


def claim_points(storage: BaseStorage, study_id: int, mark: str, space: MirrorSpace) -> Iterator[AskedPoint]:
    """Take the entries that wait, so that no other program tries them; give their points."""
    waiting = storage.get_all_trials(study_id, deepcopy=False, states=(TrialState.WAITING,))
    for frozen in waiting[:MOST_AT_ONCE]:
        optuna_trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, frozen.number)
        storage.set_trial_user_attr(optuna_trial_id, CLAIM, f"{mark}:{optuna_trial_id}")
        if not storage.set_trial_state_values(optuna_trial_id, TrialState.RUNNING):
            continue  # another program was quicker
        frozen.user_attrs[CLAIM] = f"{mark}:{optuna_trial_id}"
        point = _point(frozen, optuna_trial_id, space)
        if point is None:
            storage.set_trial_system_attr(optuna_trial_id, FIXED_PARAMS, {})  # the dashboard takes it for a mapping
            _finish(storage, optuna_trial_id, "its fixed parameters are no mapping from names to values")
        else:
            yield point


def unanswered_points(storage: BaseStorage, study_id: int, space: MirrorSpace) -> Iterator[AskedPoint]:
    """Give the points that were claimed by a coordinator which is gone, or by this one before it lost contact."""
    for frozen in storage.get_all_trials(study_id, deepcopy=False, states=(TrialState.RUNNING,)):
        if isinstance(frozen.user_attrs.get(CLAIM), str) and HASH not in frozen.user_attrs:
            optuna_trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, frozen.number)
            point = _point(frozen, optuna_trial_id, space)
            if point is not None:
                yield point


def finish_point(storage: BaseStorage, point: AskedPoint, reason: str) -> None:
    """End the entry of a point that gets no trial of its own, and say why."""
    _finish(storage, point.optuna_trial_id, reason)


def _finish(storage: BaseStorage, optuna_trial_id: int, reason: str) -> None:
    storage.set_trial_user_attr(optuna_trial_id, REASON, bounded(reason, _REASON_BYTES))
    storage.set_trial_state_values(optuna_trial_id, TrialState.FAIL)


def _point(frozen: FrozenTrial, optuna_trial_id: int, space: MirrorSpace) -> AskedPoint | None:
    fixed = frozen.system_attrs.get(FIXED_PARAMS, {})
    if not isinstance(fixed, Mapping):
        return None
    return AskedPoint(key=frozen.user_attrs[CLAIM], optuna_trial_id=optuna_trial_id, point=space.point(fixed))
