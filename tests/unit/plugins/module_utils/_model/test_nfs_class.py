# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is decided of a class; the role against an API server is in tests/kube_api/test_nfs_class.py."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import nfs_class
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.nfs_class import ClassFacts

WANTED: t.Final = nfs_class.build_class("team", "team-nfs", "10.0.0.5:/srv/muster/nas")


def test_the_class_of_an_export() -> None:
    assert nfs_class.build_class("team", "c", "[fd00::5]:/data")["parameters"]["server"] == "fd00::5"
    assert WANTED["parameters"]["onDelete"] == "retain" and WANTED["reclaimPolicy"] == "Retain"
    assert not {"_netdev", "nofail", "soft"} & set(WANTED["mountOptions"])


def test_what_is_made_and_removed() -> None:
    assert nfs_class.decide(WANTED, ClassFacts(None, False, True), "o").needs_driver
    assert not nfs_class.decide(WANTED, ClassFacts(None, True, False), "o").needs_driver
    ours = nfs_class.decide(WANTED, ClassFacts(WANTED, True, False), "o")
    assert ours.objects == (WANTED,), "applied again, which writes what differs"
    theirs = {**WANTED, "metadata": {"name": "team-nfs"}}
    assert nfs_class.decide(WANTED, ClassFacts(theirs, True, False), "o").objects == ()
    gone = nfs_class.decide(None, ClassFacts(WANTED, True, True, used=True), "o")
    assert gone.removes_class and not gone.removes_driver
    assert nfs_class.decide(None, ClassFacts(WANTED, True, True), "o").removes_driver
    assert not nfs_class.decide(None, ClassFacts(theirs, True, True), "o").removes_class


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (ClassFacts(None, False, False), "no HelmChart"),
        (ClassFacts({**WANTED, "provisioner": "x"}, True, True), "is of x, not of nfs.csi.k8s.io"),
        (
            ClassFacts({**WANTED, "parameters": {"server": "10.0.0.5", "share": "/other"}}, True, True),
            "with share /other",
        ),
        (
            ClassFacts(
                {**WANTED, "reclaimPolicy": "Delete", "parameters": {"server": "10.0.0.5", "share": "/srv/muster/nas"}},
                True,
                True,
            ),
            "deletes the files with a claim",
        ),
    ],
)
def test_what_is_refused(facts: ClassFacts, words: str) -> None:
    with pytest.raises(RefusedError) as caught:
        nfs_class.decide(WANTED, facts, "o")
    assert words in str(caught.value)
