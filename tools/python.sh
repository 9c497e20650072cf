#!/usr/bin/env bash
# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Print the path of a Python that can run the collection's tools: 3.13 if there is one, else 3.14, else 3.12.
# Looked for in PATH and in pyenv's versions; MUSTER_PYTHON names one to use instead.
set -u

# A name in PATH proves nothing (pyenv's shims exist for versions that are not switched on), so each is asked.
# The answer is the real interpreter, not the shim, and only where a virtual environment can be made.
ask() {
  "$1" - "$2" <<'PY' 2>/dev/null
import ensurepip, sys, venv
if "%d.%d" % sys.version_info[:2] != sys.argv[1]:
    sys.exit(1)
print(getattr(sys, "_base_executable", None) or sys.executable)
PY
}

if [ -n "${MUSTER_PYTHON:-}" ]; then
  for version in 3.13 3.14 3.12; do
    ask "$MUSTER_PYTHON" "$version" && exit 0
  done
  echo "MUSTER_PYTHON=$MUSTER_PYTHON is not a Python 3.12, 3.13 or 3.14 with the venv and ensurepip modules" >&2
  exit 1
fi

for version in 3.13 3.14 3.12; do
  for candidate in "python$version" python3 "${PYENV_ROOT:-${HOME:-/nonexistent}/.pyenv}"/versions/"$version".*/bin/python3; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    ask "$candidate" "$version" && exit 0
  done
done

echo "no Python 3.12, 3.13 or 3.14 with the venv and ensurepip modules in PATH or under pyenv;" \
  "install one or name it: make MUSTER_PYTHON=/path/to/python3.13" >&2
exit 1
