# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of the cluster: ``python -m tools.lab up|down|status|kubeconfig|node|link|control|kwok|install|images|exec``."""

from __future__ import annotations

import argparse
import os
import sys
import typing as t

from ..host import LabError, ensure_programs, missing, unmet
from ..podman import Podman, cache_home
from . import images, kwok, manifests, policies, torch
from .binaries import PROGRAMS
from .cluster import ASKED, NAME, Cluster

# What a cluster gets when it is asked for.
EXTRA = (*manifests.ON_REQUEST, policies.NAME)
COMMANDS = ("up", "down", "status", "kubeconfig", "node", "link", "control", "kwok", "install", "images", "exec")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the commands."""
    made = argparse.ArgumentParser(prog="python -m tools.lab", description="A Kubernetes cluster on this machine.")
    about = f"which cluster, where there are several (default: %(default)s; {ASKED} names another)"
    made.add_argument("--name", default=os.environ.get(ASKED) or NAME, help=about)
    verbs = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = verbs.add_parser("up", help="make the cluster: control plane, nodes, JobSet, Kueue, DNS, the training image")
    up.add_argument("--nodes", type=int, default=2, help="machines for work (default: %(default)s)")
    up.add_argument("--with", dest="extra", nargs="*", choices=EXTRA, default=[], help="more controllers")
    up.add_argument("--no-training", action="store_true", help="without the image for training")
    verbs.add_parser("down", help="remove everything")
    verbs.add_parser("status", help="machines, nodes, controllers, and how long it took")
    verbs.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    node = verbs.add_parser("node", help="faults of a machine; nodes that come and go")
    node.add_argument("verb", choices=["kill", "stop", "start", "cut", "heal", "add", "remove"])
    node.add_argument("machine")
    link = verbs.add_parser("link", help="the rate of a machine's link")
    link.add_argument("verb", choices=["shape", "clear"])
    link.add_argument("machine")
    link.add_argument("--mbit", type=float, default=100.0, help="default: %(default)s")
    control = verbs.add_parser("control", help="stop and start a part of the control plane")
    control.add_argument("verb", choices=["stop", "start"])
    control.add_argument(
        "part", nargs="?", default="apiserver", choices=["etcd", "apiserver", "controllers", "scheduler"]
    )
    fake = verbs.add_parser("kwok", help="simulated nodes with GPUs")
    fake.add_argument("verb", choices=["add", "remove"])
    fake.add_argument("--nodes", type=int, default=100, help="default: %(default)s")
    fake.add_argument("--gpus", type=int, default=8, help="of each (default: %(default)s)")
    install = verbs.add_parser("install", help="more controllers on a cluster that is up")
    install.add_argument("names", nargs="+", choices=EXTRA)
    verbs.add_parser("images", help="make all that is kept in the cache: programs, images, manifests, torch")
    run = verbs.add_parser("exec", help="run a command on a machine")
    run.add_argument("machine")
    run.add_argument("argv", nargs=argparse.REMAINDER)
    return made


def main(arguments: t.Sequence[str]) -> int:
    """Run one command; errors are one line."""
    asked = parser().parse_args(arguments)
    reason = unmet()
    if not reason and asked.command not in ("up", "images") and "podman" in missing():
        reason = "podman is not installed (python -m tools.lab up installs it)"
    if reason:
        return _failed(reason)
    try:
        cluster = Cluster(Podman(cache_home()), asked.name, lambda line: print(f"lab: {line}", flush=True))
        return _DO[asked.command](cluster, asked)
    except LabError as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        return _failed("interrupted")
    except BrokenPipeError:
        # Whoever read the output has seen enough; what is left in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _failed(reason: str) -> int:
    print(f"lab: {reason}", file=sys.stderr, flush=True)
    return 1


def _up(cluster: Cluster, asked: argparse.Namespace) -> int:
    cluster.up(asked.nodes, asked.extra)
    if not asked.no_training:
        with cluster.stages.stage("image for training on the nodes"):
            cluster.load(images.TRAINING)
    return 0


def _down(cluster: Cluster, _: argparse.Namespace) -> int:
    left = cluster.down()
    for line in left:
        print(f"lab: still there: {line}", file=sys.stderr)
    cluster.say(f"the cluster {cluster.name} is gone" + (f", but for {len(left)} things" if left else ""))
    return 1 if left else 0


def _status(cluster: Cluster, _: argparse.Namespace) -> int:
    found = cluster.up_record
    ready = cluster.api.nodes()
    said = {True: "Ready", False: "NotReady", None: "not registered"}
    for machine in (found.control, *found.nodes):
        state = cluster.machines.state(machine)
        print(
            f"{machine.name:12} {machine.address:14} pods {machine.pods:14} {state:8} {said[ready.get(machine.name)]}"
        )
    others = sorted(set(ready) - {item.name for item in (found.control, *found.nodes)})
    if others:
        print(f"{len(others)} other nodes, {sum(ready[name] for name in others)} Ready: {others[0]} … {others[-1]}")
    print(f"controllers: {', '.join(found.components) or 'none'}; torch: {found.torch or 'none'}")
    print(f"launchers' libraries: {found.launchers or 'none'}; those of real programs: {found.programs or 'none'}")
    print("; ".join(f"{what} {took:.1f} s" for what, took in found.stages))
    return 0


def _kubeconfig(cluster: Cluster, _: argparse.Namespace) -> int:
    cluster.up_record  # noqa: B018 - a path of a cluster that is not there helps nobody
    print(cluster.kubeconfig)
    return 0


def _node(cluster: Cluster, asked: argparse.Namespace) -> int:
    if asked.verb == "add":
        cluster.add(asked.machine)
    elif asked.verb == "remove":
        cluster.remove(asked.machine)
    else:
        getattr(cluster.machines, asked.verb)(cluster.machine(asked.machine))
    return 0


def _link(cluster: Cluster, asked: argparse.Namespace) -> int:
    machine = cluster.machine(asked.machine)
    if asked.verb == "shape":
        cluster.machines.shape(machine, asked.mbit)
    else:
        cluster.machines.unshape(machine)
    return 0


def _control(cluster: Cluster, asked: argparse.Namespace) -> int:
    cluster.control_plane(asked.verb, asked.part)
    return 0


def _kwok(cluster: Cluster, asked: argparse.Namespace) -> int:
    if asked.verb == "add":
        with cluster.stages.stage(f"{asked.nodes} simulated nodes Ready"):
            kwok.add(cluster, asked.nodes, asked.gpus)
    else:
        kwok.remove(cluster)
    return 0


def _install(cluster: Cluster, asked: argparse.Namespace) -> int:
    cluster.up_record  # noqa: B018
    cluster.install(asked.names)
    return 0


def _images(cluster: Cluster, _: argparse.Namespace) -> int:
    with cluster.stages.stage("PyTorch"):
        cluster.say(f"torch: {torch.install(cluster.podman.home, cluster.say)}")
    ensure_programs()
    cluster.fill_cache([*manifests.STANDARD, *EXTRA])
    for name in PROGRAMS:
        cluster.binaries.get(name)
    return 0


def _exec(cluster: Cluster, asked: argparse.Namespace) -> int:
    words = asked.argv[1:] if asked.argv[:1] == ["--"] else asked.argv
    done = cluster.machines.run(cluster.machine(asked.machine), *(words or ["true"]), limit_s=3600)
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    return done.returncode


_DO: t.Final[dict[str, t.Callable[[Cluster, argparse.Namespace], int]]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "kubeconfig": _kubeconfig,
    "node": _node,
    "link": _link,
    "control": _control,
    "kwok": _kwok,
    "install": _install,
    "images": _images,
    "exec": _exec,
}
