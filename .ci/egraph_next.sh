#!/usr/bin/env bash
# Runs the e-graph tests on the newer egglog, which needs Python 3.12, where such a Python is found.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=.ci/lib.sh
. .ci/lib.sh

venv=$root/.venv-next
log=${TMPDIR:-/tmp}/meganeura-next-$(id -u).log
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV

if .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
  say "the main environment has the newer egglog already"
  exit 0
fi
read -r version python <<<"$(find_pythons 12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin)" || true
if [ -z "${python:-}" ]; then
  say "no Python 3.12 or newer runs here: the newer egglog is not tested"
  exit 0
fi
: >"$log"
stamp=$(fingerprint pyproject.toml .ci/constraints.txt .ci/egraph_next.sh)
if [ "$(cat "$venv/.installed" 2>/dev/null)" != "$stamp" ]; then
  say "making .venv-next with Python $version for the newer egglog (a minute, once)"
  make_venv "$venv" "$python" "$version" "$log" || die "no environment could be made with $python; see $log"
  quietly "$log" "$venv/bin/python" -m pip install -q -c .ci/constraints.txt -e '.[test]' ||
    die "the package could not be installed with $python; see $log"
  printf '%s' "$stamp" >"$venv/.installed"
fi
"$venv/bin/python" -c 'import importlib.metadata as m, sys; print("egglog", m.version("egglog"), "on Python", sys.version.split()[0])'
"$venv/bin/python" -m pytest -q tests/egraph tests/rules
