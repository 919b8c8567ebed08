"""The dashboard's application, asked as a browser asks it."""

from __future__ import annotations

import io
import json
import warnings
from dataclasses import dataclass
from typing import Any, NoReturn
from wsgiref.util import setup_testing_defaults

from optuna.storages import RDBStorage
from optuna_dashboard import wsgi


@dataclass
class Api:
    """The dashboard's application as a browser asks it, without a socket."""

    storage: RDBStorage

    def get(self, path: str, query: str = "") -> Any:
        """Ask an application of its own, as one keeps trials for seconds; the answer has to be 200 and strict JSON."""
        environ: dict[str, Any] = {"PATH_INFO": path, "QUERY_STRING": query, "wsgi.errors": io.StringIO()}
        setup_testing_defaults(environ)
        statuses: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna's plots warn of infinities and of few trials, and go on
            application = wsgi(self.storage)
            body = b"".join(application(environ, lambda status, *_: statuses.append(status)))  # type: ignore[arg-type]
        assert statuses[0].startswith("200"), (path, statuses, body)
        return json.loads(body, parse_constant=_refuse)

    def study(self, name: str = "digits", *, plots: bool = False) -> Any:
        """Ask for what the study's page shows; there are as many trials as the database has."""
        (summary,) = [one for one in self.get("/api/studies")["study_summaries"] if one["study_name"] == name]
        path = f"/api/studies/{summary['study_id']}"
        detail = self.get(path, "after=0")
        entries = self.storage.get_all_trials(summary["study_id"], deepcopy=False)
        assert len(detail["trials"]) == len(entries)
        if not plots:
            return detail
        for plot in ("contour", "slice", "parallel_coordinate", "rank", "edf", "timeline"):
            self.get(f"{path}/plot/{plot}")
        self.get(f"{path}/param_importances")
        return detail


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")
