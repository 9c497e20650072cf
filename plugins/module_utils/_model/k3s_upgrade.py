# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which waves machines get another K3s: a pure decision on what is known of each before anything is changed."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import k3s
from .driver_waves import WaveMachine, parse_limit, plan_waves
from .errors import RefusedError
from .k3s_servers import has_majority

# What is written beside the binary and the datastore that are kept: the new binary, what it unpacks, its logs.
_SPARE_BYTES: t.Final = 1 << 30
# What is installed by pinned manifests, by the name of its Deployment there.
CONTROLLERS: t.Final = {"jobset": "jobset-controller-manager", "kueue": "kueue-controller-manager"}
_TAG: t.Final = re.compile(r":(v\d+\.\d+\.\d+[^@:/]*)(?:@|\Z)")


@dataclasses.dataclass(frozen=True, slots=True)
class UpgradeState:
    """What of a machine matters for an upgrade besides its part in the cluster.

    ``begun``: an earlier upgrade has closed it, or changed its K3s, and has not opened it again. ``kept_bytes``: the
    size of its binary and, on a server, of its datastore, which are copied. ``kubelet``: the version that its Node
    shows, ``closed``: why its Node takes no pods, each empty where it is not known. ``runs``: runs with a pod on it.
    """

    begun: bool = False
    kept_bytes: int = 0
    kubelet: str = ""
    closed: str = ""
    runs: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class UpgradePlan:
    """The hosts of each wave, and a line for each machine and each wave."""

    waves: tuple[tuple[str, ...], ...]
    table: tuple[str, ...]


def plan_upgrade(
    members: t.Sequence[k3s.K3sMember],
    states: t.Mapping[str, UpgradeState],
    chosen: t.Collection[str],
    max_unavailable: str,
) -> UpgradePlan:
    """Return in which order the chosen machines get their version of K3s.

    Servers are alone in a wave and come first; on the way back to an older version they come last, as agents are never
    newer than servers. Of the servers, one that was begun or does not run is first, so that no second one stops.

    :param max_unavailable: how many agents may be closed at once: a number, or a percentage of all agents.
    :raises InputError: where it is neither.
    :raises RefusedError: naming the machine that cannot be changed, and why.
    """
    agents = [item for item in members if item.role == "agent"]
    parse_limit(max_unavailable, len(agents))
    meant = [item for item in members if item.host in chosen]
    for item in meant:
        if not item.current:
            what = f"{item.host}: K3s is not installed on it by this collection, or its binary does not run"
            raise RefusedError(what, "Run the playbook cluster first, which lets it join")
    todo = {item.host for item in meant if is_stale(item, states[item.host]) or states[item.host].begun}
    if not todo:
        return UpgradePlan((), ("K3s of all machines is as it should be",))
    servers = [item for item in members if item.role == "server"]
    back = any(k3s.is_older(item.version, item.current) for item in servers if item.host in todo)
    _check_servers(servers, todo, states)
    _check_between(members, chosen, back)
    for item in meant:
        if item.host in todo:
            _check_space(item, states[item.host])
    order = sorted(
        (item for item in servers if item.host in todo), key=lambda item: (item.active, not states[item.host].begun)
    )
    first = tuple((item.host,) for item in order)
    then = plan_waves(
        [
            WaveMachine(
                item.host,
                item.host in todo,
                item.host in todo and states[item.host].begun,
                closed=states[item.host].closed,
            )
            for item in agents
        ],
        max_unavailable,
    )
    waves = (*then, *first) if back else (*first, *then)
    return UpgradePlan(waves, tuple(_describe(members, states, waves, max_unavailable)))


def is_stale(member: k3s.K3sMember, state: UpgradeState) -> bool:
    """Return whether its binary, or the K3s that runs, is of another version than it shall have."""
    # The version of a kubelet that is K3s' own says so; another one says nothing.
    runs_another = "+k3s" in state.kubelet and state.kubelet != member.version
    return member.current != member.version or runs_another


def describe_controllers(images: t.Mapping[str, t.Sequence[str]], pins: t.Mapping[str, str]) -> list[str]:
    """Return a line for each controller that the cluster has in another version than is pinned, or in an unknown one.

    :param images: by the name of a Deployment the images of its containers; ``pins``: by name the pinned version.
    """
    lines = []
    for name, deployment in CONTROLLERS.items():
        if deployment not in images:
            continue
        tags = [found[1] for image in images[deployment] if (found := _TAG.search(image))]
        if not tags:
            lines.append(f"{name}: its version is not known, no image of {deployment} has it as its tag")
        elif pins[name] not in tags:
            lines.append(f"{name}: {', '.join(tags)}, and {pins[name]} is pinned: the playbook cluster applies it")
    return lines


def _check_servers(
    servers: t.Sequence[k3s.K3sMember], todo: t.Collection[str], states: t.Mapping[str, UpgradeState]
) -> None:
    """Refuse where more servers than the one that is changed would be down, or one that it does not mend is."""
    down = [item for item in servers if not item.active]
    left = [item.host for item in down if item.host not in todo or not states[item.host].begun]
    if len(servers) > 1 and (left or len(down) > 1):
        names = ", ".join(left or [item.host for item in down])
        one = "," not in names
        keeps = has_majority(len(servers), len(servers) - len(down) - 1)
        why = "" if keeps else ", and with another one down the rest of etcd has no majority"
        raise RefusedError(
            f"{names}: K3s does not run on {'this server' if one else 'these servers'}{why}",
            f"Start {'it' if one else 'them'} first (systemctl start k3s, and journalctl -u k3s where that fails)",
        )


def _check_between(members: t.Sequence[k3s.K3sMember], chosen: t.Collection[str], back: bool) -> None:
    """Refuse an agent that would be too old for its servers in the time after they are changed and before it is."""
    if back:
        return
    for server in members:
        for agent in members if server.role == "server" and server.host in chosen else ():
            if agent.role == "agent" and agent.current and k3s.is_too_old(agent.current, server.version):
                raise RefusedError(
                    f"{agent.host} has K3s {agent.current}, which is too old for its server {server.host} with "
                    f"{server.version}",
                    f"Upgrade the agents to {server.current} first: set that as k3s_version",
                )


def _check_space(member: k3s.K3sMember, state: UpgradeState) -> None:
    free, needed = int(member.machine.get("free_bytes") or 0), state.kept_bytes + _SPARE_BYTES
    if free < needed and not state.begun:
        what = "its binary and its datastore" if member.role == "server" else "its binary"
        raise RefusedError(
            f"{member.host}: /var/lib/rancher has {free / 2**30:.1f} GiB free, and a copy of {what} and the new K3s "
            f"need {needed / 2**30:.1f} GiB",
            "Free some, such as with k3s crictl rmi --prune",
        )


def _describe(
    members: t.Sequence[k3s.K3sMember],
    states: t.Mapping[str, UpgradeState],
    waves: t.Sequence[t.Sequence[str]],
    max_unavailable: str,
) -> t.Iterator[str]:
    named = {item.host: item for item in members}
    for number, wave in enumerate(waves, 1):
        yield f"wave {number} of {len(waves)} (at most {max_unavailable} agents unavailable): {', '.join(wave)}"
        for host in wave:
            item, state = named[host], states[host]
            runs = f"runs on it: {', '.join(state.runs)}" if state.runs else "no run on it"
            begun = ", begun by an earlier upgrade" if state.begun else ""
            yield f"  {host} ({item.role}): K3s {item.current} -> {item.version}{begun}; {runs}"
