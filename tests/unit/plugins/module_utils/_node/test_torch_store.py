# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rendezvous store as a process: it serves on the socket that it was given, and ends when it is asked to."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import torch_store

PROGRAM = str(pathlib.Path(torch_store.__file__))
STORE = """
class TCPStore:
    def __init__(self, host, port, *rest, master_listen_fd, **options):
        self.port = f"{port} on {host} by {__name__}, the socket is {'given' if master_listen_fd > 2 else 'missing'}"
"""


@contextlib.contextmanager
def running(python: str, **env: str) -> t.Iterator[tuple[subprocess.Popen[str], int]]:
    """Start the store on a free port; return its process and the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, number = listener.getsockname()[1], listener.fileno()
        argv = [python, PROGRAM, str(number), "127.0.0.1", str(port)]
        with subprocess.Popen(
            argv,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            pass_fds=(number,),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process, port
            finally:
                process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def write_torch(folder: pathlib.Path, light: bool) -> None:
    native = folder / "torch" / "_C"
    native.mkdir(parents=True)
    (folder / "torch" / "__init__.py").touch()
    (folder / "torch" / "distributed.py").write_text(STORE)
    (native / "__init__.py").write_text("def _c10d_init(): pass" if light else "raise ImportError('elsewhere')")
    (native / "_distributed_c10d.py").write_text(STORE)


@pytest.mark.parametrize(("light", "module"), [(True, "torch._C._distributed_c10d"), (False, "torch.distributed")])
def test_a_torch_that_cannot_be_loaded_in_part_is_imported(tmp_path: pathlib.Path, light: bool, module: str) -> None:
    write_torch(tmp_path, light)
    with running(sys.executable, PYTHONPATH=str(tmp_path)) as (process, port):
        text = first_line(process)
        while "serves" not in text:
            text = first_line(process)
        assert (
            text == f"muster: rendezvous store serves 127.0.0.1:{port} on 127.0.0.1 by {module}, the socket is given\n"
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_an_interpreter_without_torch_ends_with_its_error(tmp_path: pathlib.Path) -> None:
    with running(sys.executable, PYTHONPATH=str(tmp_path)) as (process, _port):
        out = process.communicate(timeout=30)[0]
    assert process.returncode == 1 and "No module named 'torch'" in out


@pytest.mark.torch
def test_a_client_of_torch_reads_what_another_wrote() -> None:
    python = os.environ.get("MUSTER_TORCH_PYTHON", "") or pytest.skip("MUSTER_TORCH_PYTHON names no interpreter")
    client = (
        "import sys; from torch.distributed import TCPStore; s = TCPStore('127.0.0.1', int(sys.argv[1]), None, False)"
    )
    with running(python) as (process, port):
        for text in ("s.set('key', 'value')", "print(s.get('key').decode())"):
            argv = [python, "-c", f"{client}; {text}", str(port)]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
        assert done.stdout == "value\n"
        assert first_line(process) == f"muster: rendezvous store serves 127.0.0.1:{port}\n"
