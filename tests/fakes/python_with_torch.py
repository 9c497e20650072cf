# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the job's interpreter in tests without torch: what torchrun's launch asks of it, it does.

``-m torch.distributed.run OPTIONS --no-python COMMAND`` becomes ``elastic_launcher.py``, ``…/torch_store.py FD HOST PORT``
accepts connections on the socket that it was given, and ``-c PROGRAM NAMES`` says that torch 2.9.0 is installed. All
else is run by the real interpreter.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def launcher(argv: list[str]) -> list[str]:
    """Return the stand-in's command for torchrun's options."""
    at = argv.index("--no-python") + 1
    options = dict(item[2:].split("=", 1) for item in argv[:at] if "=" in item)
    command = [sys.executable, str(FOLDER / "elastic_launcher.py"), options["nproc-per-node"], options["max-restarts"]]
    return [*command, *argv[at + 1 :]]


def serve(descriptor: int) -> None:
    """Accept and close connections until a signal ends the process."""
    with socket.socket(fileno=descriptor) as listener:
        while True:
            listener.accept()[0].close()


def main(argv: list[str]) -> int:
    """Do what the arguments ask for."""
    if argv[1:3] == ["-m", "torch.distributed.run"]:
        command = launcher(argv[3:])
        os.execv(command[0], command)
    if len(argv) > 2 and argv[1].endswith("/torch_store.py"):
        serve(int(argv[2]))
    if argv[1:2] == ["-c"]:
        print(json.dumps({"version": "3.12.0", "packages": dict.fromkeys(argv[3:], "2.9.0")}))
        return 0
    os.execv(sys.executable, [sys.executable, *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
