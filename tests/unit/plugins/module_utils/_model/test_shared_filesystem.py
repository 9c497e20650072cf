# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What entries of a shared file system are refused, and what the looks of nodes mean."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import shared_filesystem as rules
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.module_utils._model.shared_filesystem import Filesystem, MountReport

OK = MountReport(type="lustre", source="10.0.0.1@tcp:/fs", marker="m", locks="shared")
HERE = Filesystem("/scratch")


def entry(**changes: t.Any) -> dict[str, t.Any]:
    about = {"name": "s", "kind": "shared_filesystem", "mode": "bind", "provider": "path"}
    return {**about, "filesystem": {"path": "/scratch"}, **changes}


def share(secret: dict[str, t.Any] | None = None, **filesystem: t.Any) -> dict[str, t.Any]:
    """Return the changes of a share that nodes are to mount."""
    about = {"path": "/mnt/nas", "mount": True, **filesystem}
    return {"provider": "smb", "endpoint": "smb://h/x", "filesystem": about, "secret_ref": secret}


def test_a_share_that_nodes_mount_has_its_user_in_variables() -> None:
    (service,) = parse_services([entry(**share({"from": "env", "keys": {"password": "NAS"}}, options="uid=1000"))])
    made = service.to_binding(None)
    assert made.filesystem == Filesystem("/mnt/nas", mount=True, options="uid=1000")
    assert made.secret_ref is not None and made.secret_ref.keys == {"password": "NAS"}


def test_an_entry_becomes_a_binding() -> None:
    (service,) = parse_services([entry(filesystem={"path": "/scratch", "type": "lustre"})])
    made = service.to_binding(None)
    assert made.endpoint == "/scratch" and made.filesystem == Filesystem("/scratch", "lustre")
    assert type(made).from_dict(made.to_dict()) == made


def test_a_class_of_a_cluster_becomes_a_binding_with_the_claim_of_jobs() -> None:
    (service,) = parse_services([entry(provider="storage_class", filesystem={"storage_class": "nfs-csi"})])
    made = service.to_binding(None)
    assert made.endpoint == "storageclass/nfs-csi" and made.filesystem == Filesystem(storage_class="nfs-csi", claim="s")
    assert type(made).from_dict(made.to_dict()) == made


@pytest.mark.parametrize(
    ("changes", "option", "words"),
    [
        ({"provider": "nfs"}, "endpoint", "is not the address of an export. Write nfs://HOST/EXPORT"),
        ({"provider": "nfs", "endpoint": "10.0.0.5:/data"}, "endpoint", "is not the address of an export"),
        ({"provider": "nfs", "endpoint": "nfs://10.0.0.5"}, "endpoint", "is not the address of an export"),
        ({"provider": "nfs", "endpoint": "smb://h/x"}, "endpoint", "is not the address of an export"),
        ({"provider": "smb", "endpoint": "smb://h"}, "endpoint", "is not the address of a share"),
        ({"provider": "smb", "endpoint": "smb://me:pw-canary@h/x"}, "endpoint", "must not contain a user"),
        ({"provider": "nfs", "endpoint": "nfs://[::1/x"}, "endpoint", "is not the address of a server"),
        ({"provider": None}, "provider", "is required. Use path"),
        ({"provider": "lustre"}, "provider", "'lustre' is not a shared file system"),
        ({"filesystem": None}, "filesystem.path", "is required. Name the folder"),
        ({"filesystem": {"path": "scratch"}}, "filesystem.path", "is not an absolute path below /"),
        ({"filesystem": {"path": "/a/../b"}}, "filesystem.path", "is not an absolute path below /"),
        ({"filesystem": {"path": "/"}}, "filesystem.path", "is not an absolute path below /"),
        ({"filesystem": {"path": "/etc/x"}}, "filesystem.path", "must not be in /proc"),
        ({"filesystem": {"path": "/s", "marker": "m"}}, "filesystem.marker", "is read from the file system"),
        ({"filesystem": {"path": "/s", "typ": "x"}}, "filesystem.typ", "Did you mean 'type'"),
        ({"endpoint": "https://x"}, "endpoint", "has no effect with provider: path"),
        ({"filesystem": {"path": "/s", "claim": "c"}}, "filesystem.claim", "has no effect with provider: path"),
        ({"provider": "storage_class"}, "filesystem.path", "has no effect with provider: storage_class"),
        ({"provider": "storage_class", "filesystem": {}}, "filesystem.storage_class", "is required. kubectl get"),
        (
            {"provider": "storage_class", "filesystem": {"storage_class": "c"}, "endpoint": "nfs://a/b"},
            "endpoint",
            "has no effect with provider: storage_class. Name the class",
        ),
        ({"region": "eu"}, "region", "has no effect for this file system"),
        ({"secret_ref": {"from": "env"}}, "secret_ref", "has no effect for this file system. Leave it out, or have"),
        (
            {"filesystem": {"path": "/s", "mount": True}},
            "filesystem.mount",
            "is for providers nfs and smb. Leave mount",
        ),
        ({"provider": "nfs", "endpoint": "nfs://h/x", "secret_ref": {"from": "env"}}, "secret_ref", "has no effect"),
        (share(options="uid=1,password=pw-canary"), "filesystem.options", "must not name a user, a password"),
        (share(options="user=me-canary"), "filesystem.options", "must not name a user, a password"),
        (share(options="uid=1 canary"), "filesystem.options", "are not options of mount"),
        (share(options="soft"), "filesystem.options", "must not have soft, which cuts checkpoints short"),
        (share(mount=False, options="uid=1"), "filesystem.options", "has no effect without filesystem.mount"),
        (share(secret={"from": "vault", "path": "x"}), "secret_ref.from", "must be env"),
        (share(secret={"from": "env", "keys": {"token": "x"}}), "secret_ref.keys.token", "is not a credential"),
        ({"deploy": {"host": "a"}}, "deploy", "is for mode: deploy"),
    ],
)
def test_what_is_refused(changes: dict[str, t.Any], option: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_services([entry(**changes)])
    assert option in caught.value.option and words in str(caught.value) and "canary" not in str(caught.value)


def test_only_a_shared_file_system_has_one() -> None:
    about = {"name": "x", "kind": "tracking", "mode": "bind", "endpoint": "https://x", "filesystem": {"path": "/s"}}
    with pytest.raises(InputError, match="is for kind: shared_filesystem"):
        parse_services([about])


@pytest.mark.parametrize(
    ("asked", "look", "words", "fix"),
    [
        (HERE, {"failed": "absent"}, "/scratch does not exist", "Mount it there"),
        (HERE, {"failed": "time"}, "/scratch did not answer", "umount -f -l"),
        (HERE, {"failed": "crash", "error": "ValueError"}, "without an answer (ValueError)", "dmesg"),
        (HERE, {"failed": "list", "error": "EACCES", "user": 7}, "may not be read by uid 7", "Give the user"),
        (HERE, {"failed": "list", "error": "ESTALE"}, "is a stale handle", "fixed fsid"),
        (HERE, {"failed": "list", "error": "ENOTCONN"}, "has lost its program (FUSE)", "start its unit again"),
        (HERE, {"is_own_disk": True, "type": "ext4"}, "nothing is mounted there", "Mount it there"),
        (Filesystem("/scratch", "nfs"), {"type": "ext4"}, "is on ext4", "Mount it there"),
        (HERE, {"failed": "mkdir", "error": "EACCES", "user": 0}, "the server squashes root", "no_root_squash"),
        (HERE, {"failed": "marker", "error": "EACCES", "user": 5}, "may not be written by uid 5", "chown"),
        (HERE, {"failed": "marker", "error": "EROFS"}, "is mounted read-only", "access_modes: [read]"),
        (HERE, {"failed": "write", "error": "ENOSPC", "free_files": 9}, "is full", "a larger file system"),
        (HERE, {"failed": "write", "error": "ENOSPC", "free_files": 0}, "has no inodes left", "with more inodes"),
        (HERE, {"failed": "write", "error": "EDQUOT"}, "is over a quota", "Raise the quota"),
        (HERE, {"failed": "rename", "error": "EINVAL"}, "fails at rename (EINVAL)", "Look at its server"),
        (HERE, {"locks": "none"}, "has no locks (fcntl)", "Lustre: flock; SMB: without nobrl"),
        (HERE, {"locks": "local"}, "does not share locks (fcntl) between nodes", "filesystem.locks: false"),
    ],
)
def test_what_is_wrong_on_a_node(asked: Filesystem, look: dict[str, t.Any], words: str, fix: str) -> None:
    found = rules.judge(asked, MountReport.from_dict({"type": "lustre", "locks": "shared", "new": 1, **look}))
    assert found is not None and words in found[0] and fix in found[1]


def test_what_is_right() -> None:
    assert rules.judge(HERE, OK) is None
    assert rules.judge(Filesystem("/scratch", locks=False), MountReport(type="fuse.juicefs", locks="local")) is None
    # Who names the type says that it may be on that disk.
    assert rules.judge(Filesystem("/scratch", "ext4"), MountReport(type="ext4", is_own_disk=True)) is None


def test_types_have_the_names_of_mount_and_of_the_kernel() -> None:
    assert rules.matches_type("nfs4", "nfs") and rules.matches_type("cifs", "smb")
    assert rules.matches_type("fuse.juicefs", "juicefs") and rules.matches_type("fuse.juicefs", "fuse")
    assert not rules.matches_type("fuseblk", "fuse") and not rules.matches_type("ext4", "nfs")


def test_most_nodes_say_which_file_system_is_meant() -> None:
    looks = {
        "a": MountReport(marker="1"),
        "b": MountReport(marker="2"),
        "c": MountReport(marker="2"),
        "d": MountReport(),
    }
    assert rules.choose_marker(None, looks) == "2" and rules.choose_marker("1", looks) == "1"
    assert (
        rules.judge_marker("/s", "2", "b", looks, False) is None
        and rules.judge_marker("/s", "2", "d", looks, False) is None
    )
    assert "another file system than on b, c" in str(rules.judge_marker("/s", "2", "a", looks, False))
    assert "is not the file system that was bound" in str(rules.judge_marker("/s", "9", "a", looks, True))
    assert rules.choose_marker(None, {}) is None


@pytest.mark.parametrize(
    ("actual", "wanted", "same"),
    [
        ("10.0.0.5:/data", "10.0.0.5:/data", True),
        ("10.0.0.5:/data/", "10.0.0.5:/data", True),
        ("10.0.0.6:/data", "10.0.0.5:/data", False),
        ("10.0.0.5:/data", "10.0.0.5:/date", False),
        ("10.0.0.5:/data", "nas:/data", True),
        ("[fd00::5]:/data", "[fd00::5]:/data", True),
        ("[fd00::6]:/data", "[fd00::5]:/data", False),
        ("//NAS/Share", "//nas/share", True),
        ("//nas/other", "//nas/share", False),
        ("/dev/sda1", "nas:/data", False),
    ],
)
def test_what_is_mounted_is_the_export_or_share(actual: str, wanted: str, same: bool) -> None:
    assert rules.is_source(actual, wanted) is same


def test_addresses_are_what_the_kernel_calls_them() -> None:
    assert rules.read_source("nfs", "nfs://nas/exports/data/", "o") == "nas:/exports/data"
    assert rules.read_source("nfs", "nfs://[fd00::5]/data", "o") == "[fd00::5]:/data"
    assert rules.read_source("smb", "smb://nas/share", "o") == "//nas/share"


def test_a_node_that_mounts_another_server_or_nothing_gets_the_command() -> None:
    nfs = Filesystem("/mnt/data", "nfs")
    other = MountReport(type="nfs4", source="10.0.0.6:/data", locks="shared")
    found = rules.judge(nfs, other, "10.0.0.5:/data", "nfs")
    assert found is not None and found[0] == "/mnt/data has 10.0.0.6:/data, not 10.0.0.5:/data"
    bare = rules.judge(nfs, MountReport(failed="absent"), "10.0.0.5:/data", "nfs")
    assert bare is not None and "install nfs-common on this node" in bare[1]
    assert bare[1].endswith("10.0.0.5:/data /mnt/data") and "hard" in bare[1] and "soft" not in bare[1]
    share = rules.judge(Filesystem("/s", "smb"), MountReport(type="ext4", source="/dev/sda1"), "//nas/s", "smb")
    assert share is not None and "cifs-utils" in share[1] and "credentials=FILE" in share[1]
    assert rules.judge(nfs, MountReport(type="nfs4", source="10.0.0.5:/data", locks="shared"), "10.0.0.5:/data") is None
