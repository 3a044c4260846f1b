#!/usr/bin/env bash
# Prepares this checkout: an environment in .venv with the package in it, and a graphics adapter to run on.
# Usage: .ci/setup.sh [demo|test|dev|ci]
#   demo  the package       test  and what the tests need       dev  and the checkers       ci  and PyTorch, where it can be had
# Safe to run again: does nothing when nothing changed. PYTHON=/path/to/python chooses the interpreter.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=.ci/lib.sh
. .ci/lib.sh

level=${1:-demo}
venv=$root/.venv
log=${TMPDIR:-/tmp}/meganeura-setup-$(id -u).log
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV

case $level in
  demo) wanted="." covers="demo" accepts="demo test dev" ;;
  test) wanted=".[test]" covers="demo test" accepts="test dev" ;;
  dev | ci) wanted=".[dev]" covers="demo test dev" accepts="dev" ;;
  *) die "unknown level '$level': use demo, test, dev or ci" ;;
esac

venv_works() {
  [ -f "$venv/.made" ] && [ "$(cat "$venv/.made")" = "$root" ] &&
    "$venv/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

install_package() {
  quietly "$log" "$venv/bin/python" -m pip install -q -c .ci/constraints.txt -e "$wanted"
}

is_installed() {
  local stamp known
  known=$(fingerprint pyproject.toml .ci/constraints.txt .ci/setup.sh)
  for stamp in $accepts; do
    if [ -f "$venv/.installed-$stamp" ] && [ "$(cat "$venv/.installed-$stamp")" = "$known" ]; then return 0; fi
  done
  return 1
}

mark_installed() {
  local stamp
  for stamp in $covers; do
    fingerprint pyproject.toml .ci/constraints.txt .ci/setup.sh >"$venv/.installed-$stamp"
  done
}

# A new interpreter may come before its packages do, so an older one is tried when the install fails.
make_and_install() {
  local version python candidates
  if [ -n "${PYTHON:-}" ]; then
    candidates=$(python_facts "$PYTHON") || die "PYTHON=$PYTHON does not run"
  else
    candidates=$(find_pythons 11)
  fi
  [ -n "$candidates" ] || die "no Python 3.11 or newer runs here; install one (Debian, Ubuntu: apt-get install python3) and try again"
  while read -r version python; do
    say "making .venv with Python $version and installing the package (a minute or two, once)"
    if make_venv "$venv" "$python" "$version" "$log"; then
      printf '%s' "$root" >"$venv/.made"
      if install_package; then return 0; fi
    fi
    say "Python $version ($python) did not work; the whole log is in $log"
  done <<<"$candidates"
  die "the package could not be installed"
}

install_torch() {
  if "$venv/bin/python" -c 'import torch' >/dev/null 2>&1; then return; fi
  if [ "$("$venv/bin/python" -c 'import sys; print(sys.version_info[:2] == (3, 11))')" != True ]; then
    say "PyTorch is tried on Python 3.11 only: comparisons with it will be skipped"
    return
  fi
  say "installing PyTorch for the comparisons (once)"
  "$venv/bin/python" -m pip install -q torch==2.13.0 </dev/null >>"$log" 2>&1 ||
    say "PyTorch could not be installed: comparisons with it will be skipped"
}

find_adapter() {
  if "$venv/bin/python" .ci/adapter.py >/dev/null 2>>"$log"; then return; fi
  say "no graphics adapter found; installing software Vulkan (mesa-vulkan-drivers)"
  if command -v apt-get >/dev/null 2>&1; then
    quietly "$log" apt_install mesa-vulkan-drivers ||
      die "apt-get could not install it; as root: apt-get update && apt-get install -y mesa-vulkan-drivers"
    "$venv/bin/python" .ci/adapter.py >/dev/null || die "there is still no adapter after installing mesa-vulkan-drivers"
    return
  fi
  case $(uname -s) in
    Linux) die "install a Vulkan driver, then try again. Software Vulkan: dnf install mesa-vulkan-drivers (Fedora), pacman -S vulkan-swrast (Arch), zypper install libvulkan_lvp (openSUSE), apk add mesa-vulkan-swrast (Alpine)" ;;
    Darwin) die "wgpu found no Metal device on this Mac; Metal needs macOS 10.13 or newer and a session with access to the GPU" ;;
    *) die "wgpu found no device; install or update the graphics driver (Vulkan or Direct3D 12), then try again" ;;
  esac
}

: >"$log"
if ! venv_works; then
  make_and_install
  mark_installed
elif ! is_installed; then
  say "installing the package into .venv (a minute or two, once)"
  install_package || die "the package could not be installed; the whole log is in $log"
  mark_installed
fi
if [ "$level" = ci ]; then install_torch; fi
find_adapter
