# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell blocks of the pages that users read, each with a name (``guide_hosts-0``), and a reader who types them.

What a page cannot know is in ``PLACEHOLDERS``; a reader fills it in. All else is run as it stands. Blocks of ``yaml`` are
what a reader's own files begin with.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import textwrap
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs" / "docsite" / "rst").glob("*.rst")),
    *sorted(ROOT.glob("roles/*/README.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
    *sorted(ROOT.glob("inventories/*/README.md")),
]
SHELLS = ("bash", "sh", "shell", "console")
LIMIT_S = 1200.0
# What no command of a page may print, whatever else it says: a Python error, or a flaw of the collection's own playbooks.
NEVER_SAID = re.compile(r"Traceback|\[DEPRECATION WARNING\]|does not support when conditional")
# Words of a block that stand for the reader's own: what they are, and how a page writes them.
PLACEHOLDERS: t.Final[t.Mapping[str, str]] = {
    "run": r"\b(?:char-lm|mlp)-1a2b3c4d\b|(?<=run_id=)RUN\b",
    "first host": r"\b192\.0\.2\.11\b",
    "second host": r"\b192\.0\.2\.12\b",
    "address of OpenBao": r"\b10\.0\.0\.5:8200\b",
    "store": r"\bhttps://minio\.example\.com:9000\b",
    "lost host": r"(?<=\[\")gpu-3(?=\"\])",
    "key": r"(?<=_API_KEY=)\.\.\.",
}


def name_of(page: pathlib.Path) -> str:
    """Return the name of a page: its folder's for a README below the root."""
    return page.parent.name if page.stem == "README" and page.parent != ROOT else page.stem


def find_code(page: pathlib.Path, languages: t.Sequence[str]) -> list[str]:
    """Return the code blocks of a page in these languages, in their order."""
    text = page.read_text()
    either = "|".join(languages)
    fenced = rf"^```(?:{either})\n(?P<text>(?:.*\n)*?)```$"
    pattern = fenced if page.suffix == ".md" else rf"^\.\. code-block:: (?:{either})\n\n(?P<text>(?: +\S.*\n|\n)+)"
    return [textwrap.dedent(match["text"]).strip("\n") + "\n" for match in re.finditer(pattern, text, re.MULTILINE)]


def typed(block: str) -> str:
    """Return what is typed of a block: with prompts, the lines behind them; the others are answers."""
    lines = block.splitlines(keepends=True)
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return "".join(prompted or lines)


def read_blocks() -> dict[str, str]:
    """Return the text of each block by its name, which is its page's and its number on it."""
    return {
        f"{name_of(page)}-{number}": typed(block)
        for page in PAGES
        for number, block in enumerate(find_code(page, SHELLS))
    }


def read_example(page: str, number: int) -> t.Any:
    """Return the content of a YAML block of a page: ``README`` or the name of a guide."""
    place = ROOT / "README.md" if page == "README" else ROOT / "docs" / "docsite" / "rst" / f"{page}.rst"
    return yaml.safe_load(find_code(place, ("yaml",))[number])


def split_commands(block: str) -> list[str]:
    """Return the commands of a block; continued lines are one."""
    return [line for line in re.split(r"(?<!\\)\n", block) if line.strip()]


def own_environment(home: pathlib.Path, **changes: str) -> dict[str, str]:
    """Return an environment with a home of one's own and without anybody's settings or credentials."""
    dropped = ("ANSIBLE_", "PYTHON", "MUSTER_", "XDG_", "KUBE", "BAO_", "VAULT_", "AWS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "HOME": os.fspath(home), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8", **changes}


class Reader:
    """Someone at a shell in a folder, with a home of their own.

    :param fills: by the name of a placeholder the reader's own, or what returns it when it is asked for.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        environment: t.Mapping[str, str],
        fills: t.Mapping[str, str | t.Callable[[], str]] | None = None,
        programs: pathlib.Path | None = None,
    ) -> None:
        self.folder = folder
        self.programs = programs or pathlib.Path(sys.executable).parent
        self.environment = {**environment, "PATH": f"{self.programs}:{environment.get('PATH', os.environ['PATH'])}"}
        self.fills = fills or {}
        self.exports: list[str] = []
        self.prefix: t.Sequence[str] = ()

    def fill(self, text: str) -> str:
        """Return a command with the reader's own in place of placeholders.

        :raises KeyError: for one that this reader has nothing for.
        """
        for name, pattern in PLACEHOLDERS.items():
            if re.search(pattern, text):
                own = self.fills[name]
                value = own if isinstance(own, str) else own()
                text = re.sub(pattern, lambda _match, value=value: value, text)  # type: ignore[misc]
        return text

    def type(self, command: str, stdin: str | None = None) -> str:
        """Run one command as bash reads it; it must succeed. Return what it printed."""
        text = self.fill(command)
        done = subprocess.run(
            [*self.prefix, "bash", "-c", "\n".join([*self.exports, text])],
            cwd=self.folder,
            env=self.environment,
            text=True,
            errors="replace",
            capture_output=True,
            input=stdin or "",
            timeout=LIMIT_S,
            check=False,
        )
        output = done.stdout + done.stderr
        print(f"$ {text}\n{output[-6000:]}")
        assert done.returncode == 0 and not NEVER_SAID.search(output), f"{text}\n{output[-6000:]}"
        if text.startswith("export "):
            self.exports.append(text)
        return output

    def run(
        self,
        name: str,
        before: t.Mapping[int, t.Callable[[], t.Any]] | None = None,
        stdin: t.Mapping[int, str] | None = None,
    ) -> list[str]:
        """Type a block from its first command to its last; return what each printed.

        :param before: by the number of a command, what happens in the world before it.
        :param stdin: by the number of a command, what it is asked for.
        """
        outputs = []
        for number, command in enumerate(split_commands(read_blocks()[name])):
            (before or {}).get(number, lambda: None)()
            outputs.append(self.type(command, (stdin or {}).get(number)))
        return outputs

    def write(self, name: str, content: t.Any) -> pathlib.Path:
        """Write one of the reader's own files."""
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return place


def require_said(said: t.Mapping[tuple[str, int], str], name: str, printed: t.Sequence[str]) -> None:
    """Fail where a command of a block did not print the words that ``said`` has for it, by block and number."""
    for (block, number), words in said.items():
        if block == name:
            assert words in printed[number], f"{words}: {printed[number]}"


def newest_run(home: pathlib.Path) -> str:
    """Return the id of the newest run below a state home."""
    places = sorted(home.glob("*/runs/*/run.json"), key=lambda place: place.stat().st_mtime)
    return places[-1].parent.name if places else "none"
