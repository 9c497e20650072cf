# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rendezvous store of a torchrun job, a process of its own that outlives every agent.

Run by the job's Python: ``python store.py FD HOST PORT``. ``FD`` is a socket that the supervisor already listens
on, so a port that is taken is found before anything starts and agents may connect while torch is still importing.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import datetime
import signal
import sys


def main(argv: list[str]) -> int:
    """Serve until a signal ends the process."""
    # torch is the job's own, not a dependency of the collection.
    from torch.distributed import TCPStore

    descriptor, host, port = int(argv[1]), argv[2], int(argv[3])
    store = TCPStore(
        host,
        port,
        None,
        True,
        timeout=datetime.timedelta(seconds=60),
        wait_for_workers=False,
        master_listen_fd=descriptor,
    )
    print(f"muster: rendezvous store serves {host}:{store.port}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(main(sys.argv))
