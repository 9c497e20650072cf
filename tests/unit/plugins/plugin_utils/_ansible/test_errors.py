# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place where an error becomes a result."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, ProviderError
from ansible_collections.muster.training.plugins.module_utils._secrets import scrubber
from ansible_collections.muster.training.plugins.plugin_utils._ansible import errors as error_boundary


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubber, "_registry", scrubber._Registry())


def failing(exc: BaseException) -> error_boundary.Result:
    def work() -> error_boundary.Result:
        raise exc

    return error_boundary.run_guarded(work)


def test_a_result_is_handed_on() -> None:
    assert error_boundary.run_guarded(lambda: {"changed": True}) == {"changed": True}


def test_an_error_is_its_one_line_with_what_to_do() -> None:
    found = failing(InputError("job.nodes", "must be at least 1, not 0", "Ask for more"))
    assert found == {"failed": True, "changed": False, "msg": "job.nodes: must be at least 1, not 0. Ask for more"}
    assert "may be billing: i-1, i-2" in failing(ProviderError("create failed", created_ids=("i-1", "i-2")))["msg"]


def test_a_defect_shows_its_kind_and_place_and_nothing_it_quotes() -> None:
    found = failing(ValueError("token geheim-42 is bad"))
    assert found["msg"].startswith("internal error: ValueError at test_errors.py:") and "geheim" not in found["msg"]
    assert found["failed"] is True and "\n" not in found["msg"]


def test_a_known_secret_is_taken_out_of_every_message() -> None:
    scrubber.remember("geheim-42")
    assert failing(InputError("x", "answered geheim-42"))["msg"] == "x: answered ********"


@pytest.mark.parametrize("exc", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_is_no_error(exc: BaseException) -> None:
    with pytest.raises(type(exc)):
        failing(exc)


def test_what_people_read_of_a_result_is_plain_lines() -> None:
    """What is data stays as it is."""
    told = {"failed": True, "msg": "run r failed: \x1b[31mx\ny", "detail": "a\x07b", "text": "a\nb\x1b", "count": 1}
    assert error_boundary.run_guarded(lambda: told) == {**told, "msg": "run r failed:  [31mx y", "detail": "a b"}
    assert failing(InputError("x", "answered\n\x1b[2Jok"))["msg"] == "x: answered [2Jok"


def test_files_of_the_collection_that_were_replaced_meanwhile_are_one_line() -> None:
    """A play that follows a run for days imports a part of it late."""

    def late(name: str) -> error_boundary.Result:
        raise ImportError("cannot import name", name=name)

    own = "ansible_collections.muster.training.plugins.plugin_utils._report.data"
    told = str(error_boundary.run_guarded(lambda: late(own))["msg"])
    assert told.startswith("the files of the collection were replaced or removed") and "same command again" in told
    assert "internal error" in str(error_boundary.run_guarded(lambda: late("other"))["msg"])
