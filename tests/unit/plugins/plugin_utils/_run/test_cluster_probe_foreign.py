# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image for another architecture ends the wait for a probe at its first word; on real nodes it is in tests/lab."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube import wait
from ansible_collections.muster.training.plugins.plugin_utils._run import cluster_probe

NO_MATCH = 'failed to pull and unpack image "i:1": no match for platform in manifest: not found'
REFUSED = r"job\.image: i:1 is not made for the architecture of its node: .*"
PLAN: t.Any = types.SimpleNamespace(namespace="n", job=types.SimpleNamespace(image="i:1", nodes=2))
MAIN: dict[str, t.Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "r-probe", "namespace": "n"}}


class Client:
    """A cluster without warnings whose pods said one line."""

    def __init__(self, line: bytes) -> None:
        self.line = line

    def watch(self, *_args: t.Any, **_more: t.Any) -> t.Any:
        return types.SimpleNamespace(__iter__=lambda: iter(()), close=lambda: None)

    def resource(self, about: t.Any) -> t.Any:
        return about

    def list(self, *_args: t.Any, **_more: t.Any) -> t.Any:
        return types.SimpleNamespace(items=[{"metadata": {"name": "r-probe-0-x"}}])

    def stream_log(self, *_args: t.Any, **_more: t.Any) -> t.Iterator[bytes]:
        return iter([self.line])


def said() -> t.Any:
    return types.SimpleNamespace(say=lambda _line: None)


def test_the_first_word_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name is looked up again in a moment; another architecture is not waited for."""
    monkeypatch.setattr(cluster_probe._Causes, "_listen", lambda _self: None)
    seen = cluster_probe._Causes(t.cast(t.Any, Client(b"")), PLAN, "r-probe", said())
    waits = [{"name": "node", "state": {"waiting": {"reason": "ErrImagePull", "message": NO_MATCH}}}]
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": MAIN["metadata"], "status": {"containerStatuses": waits}}
    with pytest.raises(RefusedError, match=REFUSED + "no match for platform in manifest") as caught:
        seen.rule(pod)
    assert "Build it for that architecture" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"exec /usr/bin/python3: exec format error", REFUSED + "exec format error"),
        (b"node rank 1 (b) did not come within 60 s", "pods of the namespace n do not reach each other"),
    ],
)
def test_a_program_that_linux_cannot_run_is_no_network(
    line: bytes, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_probe._Causes, "_listen", lambda _self: None)
    outcome = types.SimpleNamespace(end="failed", outages=0, line=lambda: "its Job failed")
    monkeypatch.setattr(wait, "wait", lambda *_args, **_more: outcome)
    monkeypatch.setattr(wait, "Wish", lambda *_args, **_more: types.SimpleNamespace(name="r-probe"))
    with pytest.raises(RefusedError, match=expected):
        cluster_probe._judge(t.cast(t.Any, Client(line)), PLAN, MAIN, said())


def test_a_probe_that_the_api_server_was_away_from_says_nothing_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of pods come from it: such a probe is repeated, once, and another architecture stays what it is."""
    monkeypatch.setattr(cluster_probe._Causes, "_listen", lambda _self: None)
    outcome = types.SimpleNamespace(end="failed", outages=1, line=lambda: "its Job failed")
    monkeypatch.setattr(wait, "wait", lambda *_args, **_more: outcome)
    monkeypatch.setattr(wait, "Wish", lambda *_args, **_more: types.SimpleNamespace(name="r-probe"))
    client = t.cast(t.Any, Client(b"r-probe-0.r-probe:4242: Name or service not known"))
    assert not cluster_probe._judge(client, PLAN, MAIN, said(), last=False)
    with pytest.raises(
        RefusedError, match="do not reach each other: r-probe-0.r-probe:4242: Name or service not known"
    ):
        cluster_probe._judge(client, PLAN, MAIN, said(), last=True)
    before = types.SimpleNamespace(end="failed", outages=0, line=lambda: "its Job failed")
    monkeypatch.setattr(wait, "wait", lambda *_args, **_more: before)
    assert not cluster_probe._judge(client, PLAN, MAIN, said(), lambda: True, last=False)
    with pytest.raises(RefusedError, match="do not reach each other"):
        cluster_probe._judge(client, PLAN, MAIN, said(), lambda: False, last=False)
    foreign = t.cast(t.Any, Client(b"exec /usr/bin/python3: exec format error"))
    with pytest.raises(RefusedError, match=REFUSED):
        cluster_probe._judge(foreign, PLAN, MAIN, said(), last=False)
