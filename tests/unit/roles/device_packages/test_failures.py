# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why packages could not be installed is one line with the host, what the package manager said, and what to do."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = pathlib.Path(__file__).resolve().parents[4] / "roles" / "device_packages"
_TASKS = {task["name"]: task for task in yaml.safe_load((ROLE / "tasks" / "ensure_present.yml").read_text())}
(_FAIL,) = _TASKS["Install the packages"]["rescue"]
_APT = "'/usr/bin/apt-get -y install 'nvidia-driver-cuda'' failed: "
HELD = "Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 77 (apt-get)..."
LOCK = "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?"
SIGNED = "Failed to update apt cache after 5 retries: E:The repository 'https://x/ ./ InRelease' is not signed."
PAGE = "E:Failed to fetch https://x/InRelease  Clearsigned file isn't valid, got 'NOSPLIT' (does the network require authentication?)"
CLOCK = "E:Release file for https://x/InRelease is not valid yet (invalid for another 1095d 2h 3min 4s)."
DKMS = "Setting up nvidia-kernel-open-dkms\nError! Bad return status for module build on kernel: 6.1.0 (x86_64)\nConsult make.log"
DPKG = "E: Sub-process /usr/bin/dpkg returned an error code (1)"
SPACE = "dpkg: error processing archive /var/cache/x.deb (--unpack):\n cannot copy: failed to write (No space left on device)"


def render(**failed: t.Any) -> str:
    """What the role says of a module that failed."""
    known: dict[str, t.Any] = {}
    for kind in ("defaults", "vars"):
        known |= yaml.safe_load((ROLE / kind / "main.yml").read_text())
    known |= {"ansible_failed_result": failed, "inventory_hostname": "gpu-1", "device_packages_name": "gpu-driver"}
    trusted = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in known.items()}
    templar = Templar(loader=DataLoader(), variables=trusted)
    return str(templar.template(trust_as_template(_FAIL["ansible.builtin.fail"]["msg"]))).strip()


@pytest.mark.parametrize(
    ("failed", "cause", "fix"),
    [
        (
            {"stdout": f"{HELD}\n{HELD}\n", "stderr": f"{LOCK}\n", "msg": f"{_APT}{LOCK}\n"},
            "is held by process 77 (apt-get)...",
            "Another program installs packages on it. Wait for its end, or stop it, then run this again",
        ),
        ({"msg": SIGNED}, "E:The repository 'https://x/ ./ InRelease' is not signed.", "muster_package_mirrors"),
        ({"msg": PAGE}, "got 'NOSPLIT'", "A page came in the place of the list, as of a proxy"),
        ({"msg": CLOCK}, "is not valid yet (invalid for another 1095d", "Set its clock (timedatectl set-ntp true)"),
        (
            {"stdout": DKMS, "stderr": DPKG, "msg": f"{_APT}{DPKG}"},
            "Error! Bad return status for module build on kernel: 6.1.0 (x86_64)",
            "See make.log of dkms",
        ),
        ({"stderr": SPACE, "msg": f"{_APT}{DPKG}"}, "No space left on device", "Remove what is not needed"),
        (
            {"rc": -9, "msg": _APT},
            "its package manager was killed (signal 9). ",
            "See what ended it (journalctl -k), then",
        ),
        ({"msg": ["No dnf", "is here"]}, "No dnf is here", "See what it says above"),
        ({"msg": "No package matching 'x' is available"}, "No package matching 'x'", "See what it says above"),
    ],
)
def test_a_failure_is_one_line_with_host_cause_and_what_to_do(failed: dict[str, t.Any], cause: str, fix: str) -> None:
    said = render(**failed)
    assert said.startswith("gpu-1: packages of gpu-driver: ") and "\n" not in said, said
    assert cause in said and fix in said and said.count(cause) == 1, said
