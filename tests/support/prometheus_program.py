# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus on loopback, and the programs beside it."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request

import pytest

from ansible_collections.muster.training.tests.support import choice_programs
from ansible_collections.muster.training.tests.support.kube_api import free_port

WINDOW: t.Final = "storage: {tsdb: {out_of_order_time_window: 30m}}\n"
OTLP: t.Final = "--web.enable-otlp-receiver"
_TRIES: t.Final = 200


class RealPrometheus(t.NamedTuple):
    """A Prometheus that runs."""

    url: str
    process: subprocess.Popen[bytes]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series that an expression has now."""
        text = urllib.parse.quote(expression)
        with urllib.request.urlopen(f"{self.url}/api/v1/query?query={text}", timeout=10) as answer:
            found = json.loads(answer.read())["data"]["result"]
        return [(item["metric"], float(item["value"][1])) for item in found]

    def value(self, expression: str) -> float | None:
        """Return the value of the one series that an expression has, None where it has none."""
        found = self.query(expression)
        assert len(found) < 2, found
        return found[0][1] if found else None


def find(name: str) -> str:
    """Return a program; the test is skipped where there is none."""
    program = choice_programs.find(name)
    if program is None:
        pytest.skip("a program of Prometheus is not in MUSTER_LAB_BIN or the lab's cache")
    return str(program)


@contextlib.contextmanager
def serving(words: t.Sequence[str], folder: pathlib.Path, url: str, path: str = "/-/ready") -> t.Iterator[t.Any]:
    """Give a process that runs with these words, once it answers 200 at a path."""
    log = folder / f"{pathlib.Path(words[0]).name}.log"
    with log.open("ab") as out:
        process = subprocess.Popen(list(words), stdout=out, stderr=out)
    try:
        for _attempt in range(_TRIES):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}{path}", timeout=5).close()
                break
            assert process.poll() is None, log.read_text()[-2000:]
            time.sleep(0.05)
        else:
            raise AssertionError(log.read_text()[-2000:])
        yield process
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def running(folder: pathlib.Path, *more: str, config: str = WINDOW, port: int = 0) -> t.Iterator[RealPrometheus]:
    """Give a Prometheus that runs with these options (its OTLP receiver is on where they name it)."""
    program, port = find("prometheus"), port or free_port()
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "prometheus.yml").write_text(config)
    places = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    words = [program, *places, f"--web.listen-address=127.0.0.1:{port}", *more]
    url = f"http://127.0.0.1:{port}"
    with serving(words, folder, url) as process:
        yield RealPrometheus(url, process)
