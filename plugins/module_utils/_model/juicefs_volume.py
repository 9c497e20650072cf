# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume of JuiceFS over an object store: what is asked for, where its metadata is, and what is to be done."""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t
import urllib.parse

from .errors import InputError, RefusedError
from .timestamps import read_time

if t.TYPE_CHECKING:
    from .service import Service
    from .service_deploy import Deploy

PROVIDER: t.Final = "juicefs"
# What the variable of ansible-playbook with the address of the metadata is called where the entry names none.
VARIABLE: t.Final = "JUICEFS_META_URL"
# The purpose of the bucket that has its data.
PURPOSE: t.Final = "files"
ADDRESS_FORM: t.Final = (
    "postgres://USER:PASSWORD@HOST/NAME or redis://:PASSWORD@HOST:6379/1, with other signs than letters and digits as "
    "%XX"
)
# What nodes keep of it on their disk without another bound (GB of 10^9 bytes).
CACHE_GB: t.Final = 20
_SCHEMES: t.Final = ("postgres", "postgresql", "redis", "rediss")
# Engines whose data is a file of one machine.
_LOCAL: t.Final = ("sqlite3", "badger", "memkv", "file")
# As a unit of systemd and the command line of JuiceFS take it without quotes.
_ADDRESS: t.Final = re.compile(r"[A-Za-z0-9:/?&=@%._~,+\[\]-]+\Z")
_SECRET_WORDS: t.Final = ("password", "passwd", "sslpassword")
# "only alphabet, number and - are allowed, and the length should be 3 to 63 characters" (juicefs format).
_SHORTEST: t.Final = 3
_UNREAD: t.Final = ("clients", "port", "tls", "host_path", "export")
_UNREAD_OF_MOUNT: t.Final = ("type", "marker", "storage_class", "claim", "size", "options", "version")


@dataclasses.dataclass(frozen=True, slots=True)
class Volume:
    """A volume as its service has it. ``address``: that of the metadata without a password; ``bucket``: a URL."""

    name: str
    host: str
    address: str
    bucket: str
    region: str
    ca: str | None
    version: str
    state: str
    delete_data: bool


@dataclasses.dataclass(frozen=True, slots=True)
class VolumeMount:
    """What a node has beside the address, to mount a volume: ``unit`` does it, with at most this much on disk."""

    unit: str
    version: str
    cache_mib: int
    region: str
    ca: str


def check_volume(service: Service, place: Deploy, where: str) -> None:
    """Refuse an entry of ``muster_services`` by which no volume can be made.

    :raises InputError: naming the key.
    """
    if not place.host:
        fix = "Write {host: NAME}: the machine that makes the volume; the nodes mount it"
        raise InputError(f"{where}.deploy.namespace", "is not for JuiceFS", fix)
    if len(service.name) < _SHORTEST:
        fix = f"Give it a name of {_SHORTEST} letters or more"
        raise InputError(f"{where}.name", f"'{service.name}' is too short for a volume of JuiceFS", fix)
    of_mount = (_UNREAD_OF_MOUNT, service.filesystem, f"{where}.filesystem")
    for keys, of, option in ((("resources",), service, where), (_UNREAD, place, f"{where}.deploy"), of_mount):
        for key in keys:
            if getattr(of, key, None):
                raise InputError(f"{option}.{key}", f"has no effect with provider: {PROVIDER}", "Leave it out")
    if service.state == "absent" and not place.delete_data:
        return
    if place.store is None and service.state == "present":
        fix = "Name the service whose bucket for files has the data: deploy: {store: NAME}"
        raise InputError(f"{where}.deploy.store", "is required", fix)
    if place.database is None:
        fix = f"Write database: {{from: env}} and set {VARIABLE} for ansible-playbook: {ADDRESS_FORM}"
        raise InputError(f"{where}.deploy.database", "is required: where the metadata is", fix)
    if place.database.source != "env":
        fix = "Set the variable of ansible-playbook from it, and from: env"
        raise InputError(
            f"{where}.deploy.database.from", "must be env: nodes have the password in a file of theirs", fix
        )


def split_address(text: str, option: str) -> tuple[str, str]:
    """Return the address of the metadata without its password, and the password, empty without one.

    :raises InputError: never showing the address.
    """
    fix = f"Write {ADDRESS_FORM}"
    try:
        parts = urllib.parse.urlsplit(text)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise InputError(option, "is not the address of a database", fix) from None
    if parts.scheme in _LOCAL:
        fix = "Use PostgreSQL or Redis, which all nodes reach"
        raise InputError(option, f"{parts.scheme} is a file of one machine, which other nodes do not have", fix)
    if parts.scheme not in _SCHEMES or not host or not parts.path.strip("/"):
        raise InputError(option, "is not the address of a PostgreSQL or a Redis with its database", fix)
    if not _ADDRESS.match(text.replace(f":{parts.password}@", ":@") if parts.password else text):
        raise InputError(option, "has signs that an address does not have", fix)
    if any(name.lower() in _SECRET_WORDS for name, _value in urllib.parse.parse_qsl(parts.query)):
        raise InputError(option, "has a password behind the question mark", fix)
    password = urllib.parse.unquote(parts.password or "")
    if "\n" in password or "\r" in password:
        raise InputError(option, "has a password of more than a line", fix)
    _user, at, place = parts.netloc.rpartition("@")
    # With an @, JuiceFS takes the password from its file.
    begin = f"{parts.username or ''}:@" if at else ""
    scheme = "postgres" if parts.scheme == "postgresql" else parts.scheme
    return urllib.parse.urlunsplit(parts._replace(scheme=scheme, netloc=f"{begin}{place}")), password


def bucket_address(endpoint: str, bucket: str, addressing: str) -> str:
    """Return the address of a bucket as JuiceFS takes it."""
    if addressing != "virtual":
        return f"{endpoint.rstrip('/')}/{bucket}"
    scheme, _colon, place = endpoint.partition("://")
    return f"{scheme}://{bucket}.{place.rstrip('/')}"


@dataclasses.dataclass(frozen=True, slots=True)
class VolumeStatus:
    """What ``juicefs status`` said of an address: ``setting`` of the volume, and the last of its lines of errors.

    ``sessions``: the machines on which it is mounted, with when each is forgotten unless it renews that.
    """

    code: int
    setting: t.Mapping[str, t.Any] | None
    error: str
    sessions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, answer: t.Mapping[str, t.Any]) -> VolumeStatus:
        """Return the status in what the program printed."""
        code, error = int(answer["code"]), find_error(str(answer["stderr"]))
        try:
            found = json.loads(str(answer["stdout"])) if code == 0 else {}
        except ValueError:
            return cls(code or 1, None, error or "its answer is not JSON")
        sessions = [(str(item.get("HostName")), str(item.get("Expire"))) for item in found.get("Sessions") or ()]
        return cls(code, found.get("Setting"), error, tuple(sorted(set(sessions))))


def find_error(text: str) -> str:
    """Return what went wrong of what JuiceFS printed, in one line and without the place in its code."""
    lines = [line for line in text.splitlines() if "<FATAL>" in line or "<ERROR>" in line]
    said = (lines or [line for line in text.splitlines() if line.strip()] or [""])[-1]
    return re.sub(r"\s*\[\w+@[\w.]+:\d+\]\s*$", "", said.rpartition(">: ")[2])[:300]


def decide(volume: Volume, status: VolumeStatus, option: str) -> bool:
    """Return whether the volume is to be formatted; False where it is there.

    :raises InputError: when its metadata cannot be read, with the reason.
    :raises RefusedError: when another volume is there: nothing is formatted over it.
    """
    if status.setting is None:
        if "is not formatted" in status.error:
            return True
        problem, fix = explain(status.error)
        raise InputError(f"{option}.database", f"{volume.host}: {problem}", fix)
    named, bucket = str(status.setting.get("Name")), str(status.setting.get("Bucket"))
    if named != volume.name:
        raise RefusedError(
            f"{option}.database: the metadata of the volume {named} is there, and {volume.name} would be another one",
            "Name another database, or give this service that name",
        )
    if bucket.rstrip("/") != volume.bucket.rstrip("/"):
        raise RefusedError(
            f"{option}.store: the data of {named} is in {bucket}, and would not come along to {volume.bucket}",
            "Name the store that has it, or copy it and name the new place (juicefs config --bucket)",
        )
    return False


# Of the drivers' and of JuiceFS' own texts.
_PROBLEMS: t.Final = (
    (r"WRONGPASS|NOAUTH|password authentication failed|invalid password", "the database does not take the password",
     f"Correct {VARIABLE} of ansible-playbook, or the variable that database.keys.url names"),
    (r'database "?[^"]+"? does not exist|DB index is out of range', "the database does not exist", "Create it there"),
    (r"refused|timeout|timed out|no route|unreachable|no such host|did not answer|EOF",
     "the database does not answer", "Look at it, and at firewalls on the way from this machine"),
    (r"not empty", "the bucket has data of another volume of this name",
     "Name another bucket or another service, or empty it"),
    (r"403|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Forbidden", "the store refuses its keys",
     "Let them write into the bucket, or correct the secret_ref of the store"),
    (r"certificate|x509", "the certificate of the store or of the database is not trusted",
     "Name the CA of the store in its entry (ca)"),
    (r"404|NoSuchBucket", "the bucket does not exist", "Create it"),
)  # fmt: skip


def explain(error: str) -> tuple[str, str]:
    """Return what an error of JuiceFS means, and what to do."""
    for pattern, problem, fix in _PROBLEMS:
        if re.search(pattern, error, re.IGNORECASE):
            return f"{problem} ({error})", fix
    return f"JuiceFS says: {error or 'nothing'}", "Look at the database and at the store"


def refuse_used(volume: Volume, status: VolumeStatus, option: str, now: float) -> None:
    """Refuse to delete a volume that is mounted. A machine that was lost counts until a minute later.

    :raises RefusedError: naming the machines.
    """
    ends = [(host, read_time(expires)) for host, expires in status.sessions]
    names = sorted({host for host, end in ends if end is None or end > now})
    if names:
        raise RefusedError(
            f"{option}.delete_data: {volume.name} is mounted on {', '.join(names[:5])}",
            "Unmount it there first, as the playbook services does on its machines; one that was lost is forgotten a "
            "minute later",
        )
