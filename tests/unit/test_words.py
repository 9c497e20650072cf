# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages, documentation, docstrings and comments are in plain words; each forbidden phrase is listed with its line.

``python -m tools.words`` prints the same list with the figures of the names (test_names.py).
"""

from __future__ import annotations

import functools

import pytest

from ansible_collections.muster.training.tools import cited_names, words


@functools.cache
def hits() -> list[words.Hit]:
    return words.find_words()


@pytest.mark.parametrize("phrase", words.PHRASES)
def test_phrase_is_not_used(phrase: str) -> None:
    places = [str(hit) for hit in hits() if hit.word == phrase]
    assert not places, "\n" + "\n".join(places)


def test_every_document_that_is_cited_is_in_the_repository() -> None:
    places = [str(hit) for hit in words.find_citations()]
    assert not places, "\n" + "\n".join(places)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("see README.md", []),
        ("as nccl-tests'\n doc/PERFORMANCE.md says", []),
        ("as PERFORM" + "ANCE.md says", ["PERFORM" + "ANCE.md"]),
        ("of nccl-tests, PERFORM" + "ANCE.md", ["PERFORM" + "ANCE.md"]),
        ("our team's plan" + ".md", ["plan" + ".md"]),
    ],
)
def test_a_document_is_in_the_repository_or_of_a_named_third_party(text: str, missing: list[str]) -> None:
    assert [match[0] for match in words.find_documents(text, {"README.md"})] == missing


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("job: no" + "body follows it", "nobody"),
        ("the run go" + "es\n    on without us", "goes on"),
        ("the machine is gi" + "ven back", "give back"),
        ("gi" + "ve the gang back", "give back"),
        ("is n" + "o name of a variable", "is no …"),
        ("Nothing. Wha" + "t nothing proves is unproven.", "what … is"),
        ("while the run liv" + "es", "lives"),
    ],
)
def test_a_phrase_is_found(text: str, phrase: str) -> None:
    assert [name for _line, name in words.find_phrases(text)] == [phrase]


@pytest.mark.parametrize(
    "text",
    [
        "there is no template 'x'",
        "it is no longer listed",
        "it outlives its node",
        "What is proven?",
        "What the job runs, and where its files are.",
        "give it back to the pool of five other people who asked for it",
    ],
)
def test_plain_text_is_left_alone(text: str) -> None:
    assert not [name for _line, name in words.find_phrases(text) if name != "give back"]


def test_lines_of_strings_and_comments_are_counted() -> None:
    source = 'x = f"""a {1}\nnob' + 'ody {x}"""\n\n# one\n# the run goe' + "s\n# on\n"
    found = [
        (line + offset, name)
        for passages in (words.read_strings(source), words.read_comments(source))
        for line, text in passages
        for offset, name in words.find_phrases(text)
    ]
    assert found == [(2, "nobody"), (5, "goes on")]


def test_what_a_text_names_exists() -> None:
    """A fix that names a playbook, a role, a variable or a key of the job leads to one that is there."""
    places = [str(hit) for hit in cited_names.find_places()]
    assert not places, "\n" + "\n".join(places)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("Run the playbook verify_fabric", []),
        ("Run the playbook verify" + "_fabrics", ["playbook verify" + "_fabrics"]),
        ("(muster.training." + "clean removes them)", ["muster.training." + "clean"]),
        ("with muster.training.prune.", []),
        ("the role gpu_driver, the role " + "gpu_drivers", ["role " + "gpu_drivers"]),
        ("the playbook passes it", []),
        ("Set job.placement.island", []),
        ("Set job.placement." + "isle", ["job.placement." + "isle"]),
        ("Set muster_job." + "nodez", ["muster_job." + "nodez"]),
        ("add -e muster_prune_keep=3", []),
        ("add -e muster_prune" + "_all", ["muster_prune" + "_all"]),
        ("job.env.NAME", []),
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str, missing: list[str]) -> None:
    assert [match[0] for match in cited_names.find_missing_names(text, cited_names.read_known())] == missing
