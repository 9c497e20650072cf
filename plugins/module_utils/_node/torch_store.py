# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rendezvous store of a torchrun job, a process of its own that outlives every agent.

Run by the job's Python: ``python store.py FD HOST PORT``. ``FD`` is a socket that the supervisor already listens
on, so a port that is taken is found before anything starts and agents may connect while this process still loads.

The store is C++ inside torch. Loading only that part takes 0.4 s and 400 MB where ``import torch`` takes 1.5 s and
650 MB (torch 2.15, CPU), beside ranks that are loading torch at the same time. It relies on torch's internals, so it is
tried in a child process, and the parent imports torch the ordinary way when the child does not get to serve.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import datetime
import importlib
import importlib.util
import os
import signal
import sys
import types
import typing as t


def load_store_alone() -> type:
    """Return torch's TCPStore without running torch's Python code: its packages are stood in for by empty ones."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("no torch")
    folder = list(spec.submodule_search_locations)[0]
    for name, place in (("torch", folder), ("torch.distributed", f"{folder}/distributed")):
        module = types.ModuleType(name)
        module.__path__ = [place]
        sys.modules[name] = module
    native = importlib.import_module("torch._C")
    native._c10d_init()
    store: type = importlib.import_module("torch._C._distributed_c10d").TCPStore
    return store


def import_store() -> type:
    """Return torch's TCPStore the documented way."""
    store: type = importlib.import_module("torch.distributed").TCPStore
    return store


def serve(store: type, argv: list[str], ready: int | None) -> t.NoReturn:
    """Open the store and serve until SIGTERM, which the caller blocks; write a byte to ``ready`` once it serves."""
    # The reference keeps the server alive.
    server = store(
        argv[2],
        int(argv[3]),
        None,
        True,
        timeout=datetime.timedelta(seconds=60),
        wait_for_workers=False,
        master_listen_fd=int(argv[1]),
    )
    print(f"muster: rendezvous store serves {argv[2]}:{server.port}", flush=True)
    if ready is not None:
        os.write(ready, b"1")
        os.close(ready)
    signal.sigwait({signal.SIGTERM})
    # Taking torch down in order takes seconds, and there is nothing to keep.
    os._exit(0)


def main(argv: list[str]) -> int:
    """Serve from a light child; when it ends before it serves, serve from here."""
    # This file's neighbours must not stand in for packages of the same name.
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    reader, writer = os.pipe()
    # In every thread that loading starts, and waited for at the end: a signal between two calls is not lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = os.fork()
    if child == 0:
        os.close(reader)
        serve(load_store_alone(), argv, writer)
    os.close(writer)
    signal.signal(signal.SIGTERM, lambda *_unused: os.kill(child, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if os.read(reader, 1):
        return abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.waitpid(child, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print("muster: torch's store cannot be loaded alone, importing torch", flush=True)
    serve(import_store(), argv, None)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_unused: sys.exit(0))
    sys.exit(main(sys.argv))
