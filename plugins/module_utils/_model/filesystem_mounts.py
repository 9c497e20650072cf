# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How nodes mount what a server of NFS or SMB exports: clients, options, and what a node is to have."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .errors import InputError
from .juicefs_volume import CACHE_GB, PROVIDER, VARIABLE, VolumeMount

if t.TYPE_CHECKING:
    from .binding import Binding
    from .service import Service
    from .shared_filesystem import Filesystem


class MountClient(t.NamedTuple):
    """The client of one protocol: packages by family of distributions, the type of a mount, its options for jobs.

    ``shown``: the options that a person is advised to mount with.
    """

    packages: t.Mapping[str, str]
    type: str
    options: str
    shown: str


# nfs(5), mount.cifs(8). ``hard``: with ``soft``, a server that is away for a moment cuts checkpoints short.
CLIENTS: t.Final[t.Mapping[str, MountClient]] = {
    "nfs": MountClient(
        {"Debian": "nfs-common", "RedHat": "nfs-utils"},
        "nfs",
        "nfsvers=4.2,hard,noatime,nconnect=8,rsize=1048576,wsize=1048576,timeo=600,retrans=2,_netdev,nofail",
        "nfsvers=4.2,hard,noatime,nconnect=8,_netdev",
    ),
    "smb": MountClient(
        {"Debian": "cifs-utils", "RedHat": "cifs-utils"},
        "cifs",
        "vers=3.1.1,hard,_netdev,nofail",
        "vers=3.1.1,hard,credentials=FILE,uid=USER,_netdev",
    ),
}
# Options of a mount: what a unit of systemd takes as it is, and those that hold a secret.
_OPTIONS: t.Final = re.compile(r"[A-Za-z0-9_.,=:/@+-]+\Z")
_SECRET_OPTIONS: t.Final = ("user", "username", "pass", "password", "password2", "credentials", "cred", "domain")
_VARIABLES: t.Final = {"username": "SMB_USERNAME", "password": "SMB_PASSWORD"}


def check_mounting(service: Service, asked: Filesystem, where: str) -> None:
    """Refuse what nodes cannot be given to mount.

    :raises InputError: naming the key; options are never shown, they may hold a password.
    """
    if asked.mount and service.provider not in CLIENTS:
        fix = "Leave mount out: the nodes have it there already"
        raise InputError(f"{where}.filesystem.mount", f"is for providers {' and '.join(CLIENTS)}", fix)
    if asked.options is not None:
        check_options(asked, f"{where}.filesystem.options")
    if service.secret_ref is not None and service.secret_ref.source != "env":
        fix = "Set the variables of ansible-playbook from it, and from: env"
        raise InputError(
            f"{where}.secret_ref.from", "must be env: what nodes mount has its user in a file of theirs", fix
        )
    for key in service.secret_ref.keys if service.secret_ref else ():
        if key not in ("username", "password"):
            raise InputError(f"{where}.secret_ref.keys.{key}", "is not a credential", "Known are: username, password")


def check_options(asked: Filesystem, option: str) -> None:
    """Refuse options of a mount that no node is to have.

    :raises InputError: never showing them.
    """
    if not asked.mount:
        raise InputError(option, "has no effect without filesystem.mount", "Set mount: true, or leave it out")
    names = [item.partition("=")[0] for item in str(asked.options).split(",")]
    if any(name in _SECRET_OPTIONS for name in names):
        raise InputError(option, "must not name a user, a password or their file", "Use secret_ref: {from: env}")
    if not _OPTIONS.match(str(asked.options)):
        raise InputError(option, "are not options of mount", "Write them as of mount -o: uid=1000,gid=1000")
    if "soft" in names:
        fix = "Leave it out: with hard, what writes waits until the server is back"
        raise InputError(option, "must not have soft, which cuts checkpoints short when the server is away", fix)


@dataclasses.dataclass(frozen=True, slots=True)
class MountPlan:
    """What the role filesystem_client makes on a node. ``source``: what the kernel calls the export or share.

    ``variables``: those of the controller that have the user of a share, or the address of a volume's metadata.
    ``volume``: how a program of its own mounts it, None for what the kernel mounts.
    """

    name: str
    source: str
    path: str
    type: str
    options: str
    packages: t.Mapping[str, str]
    variables: t.Mapping[str, str]
    volume: VolumeMount | None = None


def plan_mount(binding: Binding, source: str) -> MountPlan:
    """Return what a node is to mount of a binding."""
    if binding.provider == PROVIDER:
        return _plan_volume(binding)
    client, known = CLIENTS[str(binding.provider)], t.cast("Filesystem", binding.filesystem)
    given = binding.secret_ref.keys if binding.secret_ref else {}
    return MountPlan(
        binding.name,
        source,
        str(known.path),
        client.type,
        ",".join(filter(None, (client.options, known.options))),
        client.packages,
        {**_VARIABLES, **given} if binding.provider == "smb" else {},
    )


def _plan_volume(binding: Binding) -> MountPlan:
    known = t.cast("Filesystem", binding.filesystem)
    cache = (known.cache_gb or CACHE_GB) * 10**9 >> 20
    unit = f"muster-{binding.name}.service"
    mount = VolumeMount(unit, str(known.version), cache, binding.region or "", binding.ca or "")
    named = binding.secret_ref.keys if binding.secret_ref else {}
    return MountPlan(
        name=binding.name,
        source=binding.endpoint,
        path=str(known.path),
        type=f"fuse.{PROVIDER}",
        options="",
        packages={},
        variables={"url": VARIABLE, **named},
        volume=mount,
    )
