# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether K3s can run on a machine, by one rule: for a rented one over SSH, in a preflight, and before it is
installed.
"""

from __future__ import annotations

import re
import typing as t

# CAP_NET_ADMIN is bit 12 and CAP_SYS_ADMIN bit 21 of CapEff (linux/capability.h).
_NET_ADMIN, _SYS_ADMIN = 12, 21


def k3s_reasons(facts: t.Mapping[str, str]) -> tuple[str, ...]:
    """Return why K3s cannot run there; empty when it can (it needs a kernel and a cgroup tree of its own).

    A container that has all of that, such as one that boots systemd with every capability, is as good as a machine.

    :param facts: ``container`` (``none`` or its kind), ``cap_eff`` (hexadecimal, of process 1), and ``systemd``,
        ``kmsg``, ``tun``, ``cgroup_rw``, each ``1`` where it is there.
    """
    mask = int(facts["cap_eff"], 16) if re.fullmatch(r"[0-9a-fA-F]{1,16}", facts.get("cap_eff", "")) else 0
    checks = (
        (facts.get("systemd") == "1", "systemd is not running"),
        (bool(mask >> _SYS_ADMIN & 1 and mask >> _NET_ADMIN & 1), "lacks CAP_SYS_ADMIN or CAP_NET_ADMIN"),
        (facts.get("kmsg") == "1", "has no /dev/kmsg"),
        (facts.get("tun") == "1", "has no /dev/net/tun"),
        (facts.get("cgroup_rw") == "1", "has a read-only cgroup tree"),
    )
    reasons = tuple(reason for holds, reason in checks if not holds)
    kind = facts.get("container", "")
    return (f"is a {kind} container", *reasons) if reasons and kind not in ("", "none") else reasons
