"""The study's entries, and the storage that holds them: one study in memory, rebuilt from rows at any time.

Optuna's own in-memory storage cannot take a paused trial back to running, stamps entries with the time, and refuses
what an earlier proposal of the same process suggested but not what a row says. This one holds exactly what it is given.
"""

# ruff: noqa: D102 - overriding methods are documented by Optuna's `BaseStorage`
from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn, Self

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweeper.errors import UserError
from sweeper.search.layouts import Layout

STUDY_ID: Final = 0
FIXED_PARAMS: Final = "fixed_params"
"""The trial attribute by which `optuna.Trial` fixes parameters (what `Study.enqueue_trial` writes)."""

_SOME_TIME: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - as Optuna's own, and the same for every entry (SAME)
_FINISHED: Final = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
_NOTHING: Final[dict[Any, Any]] = {}  # Any: shared by all that are empty
_UPDATED_ONLY_FROM_ROWS: Final = "entries of the study come from the ledger"


class Entry(FrozenTrial):
    """A number of the search as Optuna sees it. Its id is its number; its mappings are shared, never changed."""

    def __init__(
        self,
        number: int,
        state: TrialState,
        layout: Layout,
        params: dict[str, Any] = _NOTHING,  # Any: as in Optuna
        *,
        system_attrs: dict[str, Any] = _NOTHING,  # Any: as in Optuna
        values: Sequence[float] | None = None,
        intermediate_values: dict[int, float] = _NOTHING,
    ) -> None:
        super().__init__(
            number=number,
            state=state,
            value=None,
            datetime_start=_SOME_TIME,
            datetime_complete=_SOME_TIME if state in _FINISHED else None,
            params=params,
            distributions=layout.distributions,
            user_attrs=_NOTHING,
            system_attrs=system_attrs,
            intermediate_values=intermediate_values,
            trial_id=number,
            values=values,
        )
        self.layout = layout

    @property
    def constraints(self) -> dict[str, float]:
        # Asked of every entry for every parameter: a tenth of a proposal goes into looking through no attributes.
        return super().constraints if self.system_attrs else _NOTHING

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:  # Any: as in `copy`
        # A sampler may set a copy's value; the mappings, which are what is slow to copy, nobody changes.
        return self.__copy__()


class EntryStorage(BaseStorage):
    """One study: its entries by number, and its own attributes.

    Samplers and pruners write attributes, and the parameters of the entry that is being suggested. Everything else
    comes from the ledger: `append` and `replace`.
    """

    def __init__(self, directions: Sequence[StudyDirection], name: str, empty: Layout) -> None:
        self.entries: list[Entry] = []
        self.study_attrs: dict[str, Any] = {}  # Any: what samplers write
        self.written: dict[str, Any] = {}  # Any: what samplers write
        """Study attributes written since it was last emptied."""
        self.fixed: Mapping[str, object] = {}
        """Parameters that the next new entry is fixed to, as Optuna takes them."""
        self.directions = list(directions)
        self.name = name
        self.empty = empty
        """The layout of an entry without parameters."""

    def append(self, entry: Entry) -> None:
        """Add the entry of the next number."""
        self.entries.append(entry)

    def replace(self, entry: Entry) -> Entry:
        """Put an entry in its number's place; give the one that was there."""
        before = self.entries[entry.number]
        self.entries[entry.number] = entry
        return before

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        """Give the one study that there is (`optuna.create_study` asks for it)."""
        return STUDY_ID

    def get_study_id_from_name(self, study_name: str) -> int:
        return STUDY_ID

    def get_study_name_from_id(self, study_id: int) -> str:
        return self.name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self.directions

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:  # Any: as in Optuna
        return {}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:  # Any: as in Optuna
        return self.study_attrs

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:  # Any: as in Optuna
        self.study_attrs = {**self.study_attrs, key: value}
        self.written[key] = value

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Add a running entry of the next number, fixed to `fixed`."""
        if template_trial is not None:
            self._refuse()
        number = len(self.entries)
        attrs = {FIXED_PARAMS: dict(self.fixed)} if self.fixed else {}
        entry = Entry(number, TrialState.RUNNING, self.empty, {}, system_attrs=attrs)
        entry.distributions = {}  # `optuna.Trial` writes into the mappings of the trial that it is given
        self.append(entry)
        return number

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        entry = copy.copy(self.entries[trial_id])
        entry.params = {**entry.params, param_name: distribution.to_external_repr(param_value_internal)}
        entry.distributions = {**entry.distributions, param_name: distribution}
        self.entries[trial_id] = entry

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:  # Any: as in Optuna
        entry = copy.copy(self.entries[trial_id])
        entry.system_attrs = {**entry.system_attrs, key: value}
        self.entries[trial_id] = entry

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self.entries[trial_id]

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        return trial_number

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if states == (TrialState.WAITING,):
            return []  # what `ask` looks for first; there is never one
        found = self.visible()
        chosen: list[FrozenTrial]
        chosen = list(found) if states is None else [entry for entry in found if entry.state in states]
        return copy.deepcopy(chosen) if deepcopy else chosen

    def visible(self) -> Sequence[Entry]:
        """Give the entries that the study shows, by number."""
        return self.entries

    def get_all_studies(self) -> list[Any]:  # Any: a private type of Optuna's
        return []

    def delete_study(self, study_id: int) -> None:
        self._refuse()

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> NoReturn:
        self._refuse()

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        self._refuse()

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:  # Any: as in Optuna
        self._refuse(key)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:  # Any: as in Optuna
        self._refuse(key)

    def _refuse(self, user_attr: str = "") -> NoReturn:
        wanted = f"set the user attribute {user_attr!r}" if user_attr else "change the study's trials"
        raise UserError(
            f"the sampler or pruner wants to {wanted}, which would be lost at the next restart",
            remedy=f"A sampler chooses parameters and may keep system attributes; {_UPDATED_ONLY_FROM_ROWS}.",
        )
