"""The client's calls about schedules."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from jqd.client.answer import odd
from jqd.client.http import Http, all_rows, encode
from jqd.client.job_info import date_given, job_map
from jqd.client.path import path_of
from jqd.domain.units import Duration, duration_s

PAGE = 500  # schedules in one answer: takes less than a second, even if their dates are years away

Missed = Literal["skip", "once", "all"]
Overlap = Literal["skip", "queue", "replace"]


class Schedules:
    """`Client`'s methods about schedules. A schedule is returned as a dict: `name`, `next` (dates), `job`, `last`, …"""

    _http: Http

    def set_schedule(
        self,
        name: str,
        job: Mapping[str, Any],
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        missed: Missed | None = None,
        overlap: Overlap | None = None,
        jitter: Duration | None = None,
        until: datetime | float | str | None = None,
    ) -> dict[str, Any]:
        """Create or replace a schedule. It pushes a job at each date of `cron` in the time zone `tz`, or once in each
        `every`.

        `job`: a map like {"name": "report", "argument": 1}, without an id and a date. `missed`: which of the dates that
        passed while no job could be pushed still count. `overlap`: what happens at a date while the last job has not
        ended. `jitter`: each job starts later by up to so much. `until`: the end of the schedule. Setting the same
        schedule again changes nothing. Raises Invalid, which says where in the expression the error is.
        """
        fields = {
            "cron": cron,
            "every": None if every is None else duration_s(every),
            "tz": tz,
            "missed": missed,
            "overlap": overlap,
            "jitter": None if jitter is None else duration_s(jitter),
            "until": date_given("until", until),
        }
        values = {"job": job_map(**job), **{key: value for key, value in fields.items() if value is not None}}
        return self._http.call_for_map("a call about a schedule", "PUT", _path(name), body=encode(values))

    def schedules(self) -> list[dict[str, Any]]:
        """Return all schedules, by name."""
        return all_rows(self._http, "schedules", PAGE)

    def schedule(self, name: str) -> dict[str, Any]:
        """Return one schedule, with its next five dates. Raises NotFound."""
        return self._http.call_for_map("a call about a schedule", "GET", _path(name))

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Jobs that it has pushed remain. Raises NotFound."""
        self._http.call("DELETE", _path(name), repeatable=False)

    def pause_schedule(self, name: str) -> dict[str, Any]:
        """Pause a schedule, so that it pushes no jobs until it is resumed. Raises NotFound."""
        return self._http.call_for_map("a call about a schedule", "POST", f"{_path(name)}/pause")

    def resume_schedule(self, name: str) -> dict[str, Any]:
        """Resume a schedule. It pushes jobs from now on, and none for dates during the pause. Raises NotFound."""
        return self._http.call_for_map("a call about a schedule", "POST", f"{_path(name)}/resume")

    def run_schedule(self, name: str) -> str:
        """Push a schedule's job once, now, and return the job's id. Raises NotFound."""
        answer = self._http.call("POST", f"{_path(name)}/run-now", repeatable=False)
        job_id = answer.body.get("job_id") if isinstance(answer.body, dict) else None
        if not isinstance(job_id, str):
            raise odd("a push by a schedule", answer)
        return job_id


def _path(name: str) -> str:
    return path_of("schedules", name)
