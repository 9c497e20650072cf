# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images for another architecture than the node's, in the words of containerd 1.7, Docker, CRI-O and the kubelet 1.34."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import events

WORDS = "its image is not made for the architecture of its node"
PULL = "rpc error: code = NotFound desc = failed to pull and unpack image"


def pod(reason: str, message: str) -> dict[str, object]:
    waits = [{"name": "c", "state": {"waiting": {"reason": reason, "message": message}}}]
    return {"kind": "Pod", "metadata": {"name": "x", "namespace": "n"}, "status": {"containerStatuses": waits}}


@pytest.mark.parametrize(
    "message",
    [
        f'{PULL} "r/x:1": no match for platform in manifest: not found',
        f'{PULL} "r/x:1": no match for platform in manifest sha256:0f: not found',
        "no matching manifest for linux/amd64 in the manifest list entries",
        'choosing an image from manifest list: no image found in image index for architecture "amd64", OS "linux"',
    ],
)
@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_an_image_without_the_nodes_architecture_says_so(reason: str, message: str) -> None:
    found = events.find_pod_problem(pod(reason, message))
    assert found is not None and found.code == "image"
    assert found.text == f"Pod n/x: {WORDS}: {reason}: {message}"
    about = {"kind": "Pod", "namespace": "n", "name": "x"}
    told = events.parse_event({"type": "Warning", "reason": "Failed", "message": message, "involvedObject": about})
    assert told is not None and told.text == f"Pod n/x: {WORDS}: Failed: {message}"


def test_other_causes_keep_their_words() -> None:
    found = events.find_pod_problem(pod("ErrImagePull", f'{PULL} "r/x:1": r/x:1: not found'))
    assert found is not None and found.text.startswith("Pod n/x: its image cannot be pulled: ")


def test_what_linux_says_of_a_foreign_program_is_known() -> None:
    assert events.is_wrong_architecture("exec /usr/bin/python3: exec format error")
    assert not events.is_wrong_architecture("exec /usr/bin/python3: no such file or directory")
