# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials of trackers, tried against the fakes of their servers."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._services.tracking.tracker_access import (
    check_access,
    check_artifacts,
)
from ansible_collections.muster.training.tests.fakes.trackers import API_KEY, TOKEN, FakeMlflow, FakeWandb


def binding(endpoint: str, provider: str = "mlflow") -> Binding:
    about = {"name": "t", "component": "tracking", "mode": "bind", "endpoint": endpoint, "provider": provider}
    return Binding.from_dict(about)


def test_an_open_server_and_one_that_takes_the_token() -> None:
    with FakeMlflow() as open_to_all, FakeMlflow(TOKEN) as closed:
        assert check_access(binding(open_to_all.url), {}, "o") == ""
        assert check_access(binding(closed.url), {"token": TOKEN}, "o") == ""
        assert closed.asked == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize("given", [{}, {"token": "another-token-0000"}, {"username": "me", "password": "pass-word-1"}])
def test_credentials_that_are_refused(given: dict[str, str]) -> None:
    with FakeMlflow(TOKEN) as closed, pytest.raises(InputError, match="refuses the credentials .HTTP 401") as caught:
        check_access(binding(closed.url), given, "o")
    assert caught.value.option == "o.secret_ref"
    assert not any(value in str(caught.value) for key, value in given.items() if key != "username")


def test_a_server_that_takes_figures_and_no_files() -> None:
    """A bucket that is gone behind it is an error; a user who may store none, and a server without files, are not."""
    path = "/api/2.0/mlflow-artifacts/artifacts/"
    for status, is_refused in ((500, True), (503, True), (403, False), (404, False)):
        with FakeMlflow() as server:
            server.stores = status
            if is_refused:
                with pytest.raises(RefusedError, match=f"cannot store files .HTTP {status}"):
                    check_artifacts(binding(server.url), {}, "o")
            else:
                check_artifacts(binding(server.url), {}, "o")
    with FakeMlflow(TOKEN) as server:
        check_artifacts(binding(server.url), {"token": TOKEN}, "o")
        assert [call.partition(path)[0] for call in server.stored] == ["PUT ", "DELETE "]


def test_a_proxy_that_takes_small_files_alone() -> None:
    with FakeMlflow() as server:
        server.stores = 413
        words = r"a proxy before MLflow at .* takes no file of 2 MiB .HTTP 413.*client_max_body_size"
        with pytest.raises(RefusedError, match=words):
            check_artifacts(binding(server.url), {}, "o")


def test_a_key_that_nobody_has() -> None:
    with FakeWandb() as server:
        assert check_access(binding(server.url, "wandb"), {"api_key": API_KEY}, "o") == ""
        with pytest.raises(InputError, match="does not know the key"):
            check_access(binding(server.url, "wandb"), {"api_key": "another-key-" + "1" * 28}, "o")


def test_what_cannot_be_reached_from_here_was_not_tried() -> None:
    with FakeMlflow() as server:
        gone = server.url
    assert check_access(binding(gone), {}, "o")


def test_an_address_with_https_of_a_server_that_speaks_http() -> None:
    with FakeMlflow() as server:
        said = check_access(binding(server.url.replace("http://", "https://")), {}, "o")
    assert "does not speak TLS" in said


def test_another_server() -> None:
    with FakeWandb() as server, pytest.raises(RefusedError, match="the API of MLflow at .* answered 404"):
        check_access(binding(server.url), {}, "o")


def test_a_name_that_the_server_does_not_take() -> None:
    with FakeMlflow(TOKEN, hosts=()) as server, pytest.raises(InputError, match="HTTP 403"):
        check_access(binding(server.url), {"token": TOKEN}, "o")
