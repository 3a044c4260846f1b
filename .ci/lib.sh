# Small shell functions that the scripts beside this file share. Sourced by bash, never run.

say() { printf 'meganeura: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# as_root COMMAND...: with sudo when not root; never waits for a password that nobody can type.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    if [ -t 0 ]; then sudo "$@"; else sudo -n "$@"; fi
  else
    return 1
  fi
}

# apt_install PACKAGE...: quiet, without questions; fails where there is no apt or no right to use it.
apt_install() {
  command -v apt-get >/dev/null 2>&1 || return 1
  as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"
}

# quietly LOG COMMAND...: output goes to LOG, whose end is shown when the command fails.
quietly() {
  local log=$1
  shift
  if ! "$@" </dev/null >>"$log" 2>&1; then
    tail -n 25 "$log" >&2
    return 1
  fi
}

# python_facts PATH: "MAJOR.MINOR PATH" of an interpreter that really runs (a version manager's shim may only print
# an error), with the parts that pip and wgpu need.
python_facts() {
  local ask='import ctypes, ssl, sys, zlib; print("%d.%d" % sys.version_info[:2], sys.executable)'
  if command -v timeout >/dev/null 2>&1; then
    timeout 20 "$1" -c "$ask" </dev/null 2>/dev/null
  else
    "$1" -c "$ask" </dev/null 2>/dev/null
  fi
}

# find_pythons MINIMUM [FOLDER...]: every running Python 3.MINIMUM or newer on PATH and in FOLDERs, newest first.
find_pythons() {
  local minimum=$1 folder name
  shift
  {
    printf '%s\n' "$PATH" | tr ':' '\n'
    printf '%s\n' "$@"
  } | while IFS= read -r folder; do
    case "$folder" in "" | "$root"/.venv*) continue ;; esac # an activated environment is not a base for itself
    for name in "$folder"/python3 "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9]; do
      if [ -x "$name" ]; then python_facts "$name" || true; fi
    done
  done | awk -v minimum="$minimum" '
    { split($1, part, "."); if (part[1] == 3 && part[2] + 0 >= minimum && !seen[$1]++) print part[2], $0 }
  ' | sort -rn | cut -d' ' -f2-
}

# make_venv FOLDER PYTHON VERSION LOG: a fresh environment with pip; Debian keeps venv in a package of its own.
make_venv() {
  local folder=$1 python=$2 version=$3 log=$4
  rm -rf "$folder"
  if ! "$python" -m venv "$folder" </dev/null >>"$log" 2>&1; then
    rm -rf "$folder"
    say "installing python$version-venv"
    { apt_install "python$version-venv" || apt_install python3-venv; } </dev/null >>"$log" 2>&1 || true
    quietly "$log" "$python" -m venv "$folder" || { rm -rf "$folder"; return 1; }
  fi
  "$folder/bin/python" -m pip --version >>"$log" 2>&1 || { rm -rf "$folder"; return 1; }
}

# fingerprint FILE...: changes when a file, the checkout's place or this script changes.
fingerprint() {
  { printf '%s\n' "$root"; cat "$@"; } | cksum | tr -d ' \n'
}
