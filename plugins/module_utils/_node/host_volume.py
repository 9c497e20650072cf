# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume of JuiceFS as its own program on this node says it is, makes it, or deletes it.

The password is in no file of a disk and in no environment: the program reads it from a file of the memory.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import pathlib
import subprocess
import typing as t

NodeRequest = t.Mapping[str, t.Any]
# Redis is asked for as long as there is time; a database that is there answers at once.
_STATUS_S: t.Final = 20.0
_LIMIT = 1 << 20


def answer(request: NodeRequest) -> dict[str, t.Any]:
    """Run the program; return ``{code, stdout, stderr}``, or a ``problem`` where it is not there.

    ``step`` is ``status``, ``format`` (with ``bucket``, ``name`` and ``keys``, its environment) or ``destroy`` (with
    ``uuid``). All have ``program``, ``address``, ``password``, ``ca`` and ``region``.
    """
    program, address = str(request["program"]), str(request["address"])
    if not pathlib.Path(program).is_file():
        return {"problem": f"{program} does not exist", "fix": "The role shared_filesystem installs it"}
    words = {
        "status": ["status", address],
        "format": ["format", "--storage", "s3", "--bucket", str(request.get("bucket")), address,
                   str(request.get("name"))],
        # Whether it is mounted was asked before; its own look counts machines that were lost.
        "destroy": ["destroy", "--yes", "--force", address, str(request.get("uuid"))],
    }[str(request["step"])]  # fmt: skip
    env = {"PATH": os.environ.get("PATH", ""), "AWS_REGION": str(request["region"])}
    env |= {str(name): str(value) for name, value in request.get("keys", {}).items()}
    texts = {"META_PASSWORD_FILE": str(request["password"]), "SSL_CERT_FILE": str(request["ca"])}
    opened = {name: _hold(text) for name, text in texts.items() if text}
    try:
        env |= {name: f"/proc/self/fd/{number}" for name, number in opened.items()}
        limit = _STATUS_S if request["step"] == "status" else float(request["within_s"])
        return _run([program, *words], env, tuple(opened.values()), limit)
    finally:
        for number in opened.values():
            os.close(number)


def _hold(text: str) -> int:
    """Return a file of the memory with a text; it has no name, and goes with its last reader."""
    number = os.memfd_create("muster", 0)
    os.write(number, text.encode())
    return number


def _run(argv: list[str], env: dict[str, str], kept: tuple[int, ...], limit: float) -> dict[str, t.Any]:
    try:
        done = subprocess.run(argv, env=env, pass_fds=kept, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        error = f"<FATAL>: {argv[1]} did not answer within {limit:.0f} s"
        return {"code": 1, "stdout": "", "stderr": error}
    stdout, stderr = (data[-_LIMIT:].decode(errors="replace") for data in (done.stdout, done.stderr))
    return {"code": done.returncode, "stdout": stdout, "stderr": stderr}
