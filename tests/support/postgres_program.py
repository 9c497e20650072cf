# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real PostgreSQL on loopback, with one database and a user with a password."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import signal
import subprocess
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.service_world import free_port
from ansible_collections.muster.training.tests.support.node_lab import eventually

PASSWORD: t.Final = "canary-database-0001"
_PLACES: t.Final = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))


@contextlib.contextmanager
def serving(root: pathlib.Path) -> t.Iterator[str]:
    """Run it while the context is open; yield the address of its database with the password."""
    if not _PLACES or os.geteuid() != 0:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    programs, port, user = _PLACES[-1], free_port(), pwd.getpwnam("postgres")
    for place in (root, *root.parents[:3]):
        place.chmod(place.stat().st_mode | 0o011)
    data, secret = root / "postgres", root / "postgres.password"
    data.mkdir()
    secret.write_text(PASSWORD)
    for place in (data, secret):
        os.chown(place, user.pw_uid, user.pw_gid)
    about = [f"--pgdata={data}", "--username=mlflow", f"--pwfile={secret}", "--auth=scram-sha-256", "--no-sync"]
    identity: t.Any = {"user": user.pw_uid, "group": user.pw_gid, "cwd": data}
    subprocess.run([str(programs / "initdb"), *about], check=True, capture_output=True, **identity)
    words = ["-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"]
    with (root / "postgres.log").open("wb") as log:
        process = subprocess.Popen([programs / "postgres", *words], stdout=log, stderr=log, **identity)
    try:
        ready = [str(programs / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={port}"]
        eventually(lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL to answer", 60)
        yield f"postgresql://mlflow:{PASSWORD}@127.0.0.1:{port}/postgres"
    finally:
        # At once: a client that is still connected would keep it.
        process.send_signal(signal.SIGINT)
        process.wait()


def query(address: str, text: str) -> str:
    """Return what a query answers, with PostgreSQL's own client."""
    argv = [str(_PLACES[-1] / "psql"), "--no-psqlrc", "--tuples-only", "--no-align", "--command", text, address]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
