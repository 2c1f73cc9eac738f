# Sourced by scripts/run, scripts/test and .ci/run: makes or repairs this checkout's own Python environment.
#
#   prepare NAME REQUIREMENT   after it, "$ROOT/NAME/bin/python" runs the gflow of this checkout
#
# An environment is current when its stamp equals what pyproject.toml, constraints.txt and the interpreter ask for.
# While one is being changed a marker lies beside it; a marker found at the start means that the last change was
# interrupted, and the environment is made afresh.

ROOT=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1

fail() {
    printf 'gflow: %s\n' "$1" >&2
    exit 2
}

# Is $1 a Python from 3.11 to 3.13? With --venv as $2: can it also make environments?
suits() {
    local need='import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13)'
    [ "${2-}" = --venv ] && need="import venv, ensurepip; $need"
    env -u PYTHONPATH -u PYTHONHOME "$1" -c "$need; sys.exit(not ok)" >/dev/null 2>&1
}

# Prints a Python to build with; GFLOW_PYTHON decides when it is set.
find_python() {
    local candidate without_venv=''
    if [ -n "${GFLOW_PYTHON-}" ]; then
        command -v -- "$GFLOW_PYTHON" >/dev/null || fail "GFLOW_PYTHON=$GFLOW_PYTHON is not a program; set it to a Python 3.11, 3.12 or 3.13"
        suits "$GFLOW_PYTHON" || fail "GFLOW_PYTHON=$GFLOW_PYTHON is not a Python from 3.11 to 3.13; set it to one that is"
        suits "$GFLOW_PYTHON" --venv || fail "GFLOW_PYTHON=$GFLOW_PYTHON lacks the venv module; install it (on Debian: python3-venv) or set GFLOW_PYTHON to another Python"
        command -v -- "$GFLOW_PYTHON"
        return
    fi
    for candidate in python3.12 python3.13 python3.11 python3 python "$HOME"/.pyenv/versions/3.1[123].*/bin/python; do
        command -v -- "$candidate" >/dev/null || continue
        suits "$candidate" || continue
        if suits "$candidate" --venv; then
            command -v -- "$candidate"
            return
        fi
        without_venv=$candidate
    done
    [ -z "$without_venv" ] || fail "$without_venv lacks the venv module; install it (on Debian: python3-venv) or set GFLOW_PYTHON to another Python"
    fail "no Python from 3.11 to 3.13 found; install one, or set GFLOW_PYTHON to its path"
}

# What an environment must have been made from to be current.
stamp_of() {
    "$1/bin/python" -c 'import sys; print(sys.version, sys.prefix)' 2>/dev/null || return 1
    printf '%s\n' "$2"
    cat -- "$ROOT/pyproject.toml" "$ROOT/constraints.txt" | cksum
}

build() {
    local venv=$1 requirement=$2 python
    if [ -e "$venv.unfinished" ] || ! suits "$venv/bin/python" || ! grep -qF -- "$venv" "$venv/bin/activate" 2>/dev/null \
        || { [ -n "${GFLOW_PYTHON-}" ] && ! same_version "$venv/bin/python" "$GFLOW_PYTHON"; }; then
        python=$(find_python) || exit 2
        : 2>/dev/null >"$venv.unfinished" || fail "cannot write to $ROOT; copy the repository to a folder of your own"
        printf 'gflow: making %s with %s\n' "$venv" "$python" >&2
        env -u PYTHONPATH -u PYTHONHOME "$python" -m venv --clear -- "$venv" >&2 || fail "could not make $venv (see above); set GFLOW_PYTHON to another Python"
    fi
    : 2>/dev/null >"$venv.unfinished" || fail "cannot write to $ROOT; copy the repository to a folder of your own"
    rm -f -- "$venv/gflow.stamp"
    printf 'gflow: installing packages into %s (once; about a minute)\n' "$venv" >&2
    (
        unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
        cd -- "$ROOT" || exit 1
        # Two calls: the build back end must be there, at its pinned version, before the package is built with it.
        "$venv/bin/python" -m pip install -qq --disable-pip-version-check --constraint constraints.txt flit_core &&
            "$venv/bin/python" -m pip install -qq --disable-pip-version-check --constraint constraints.txt \
                --no-build-isolation --editable "$requirement"
    ) >&2 || fail "installing into $venv failed (see above); check the network and run this again"
    stamp_of "$venv" "$requirement" >"$venv/gflow.stamp" || fail "cannot write to $venv; check the disk and run this again"
    rm -f -- "$venv.unfinished"
}

same_version() {
    [ "$("$1" -c 'import sys; print(sys.version)' 2>/dev/null)" = "$("$2" -c 'import sys; print(sys.version)' 2>/dev/null)" ]
}

current() {
    [ ! -e "$1.unfinished" ] && [ -f "$1/gflow.stamp" ] && [ "$(cat -- "$1/gflow.stamp")" = "$(stamp_of "$1" "$2")" ] &&
        { [ -z "${GFLOW_PYTHON-}" ] || same_version "$1/bin/python" "$GFLOW_PYTHON"; }
}

prepare() {
    local venv=$ROOT/$1 requirement=$2
    current "$venv" "$requirement" && return
    # Two callers at once: the second waits, then finds the environment current.
    if command -v flock >/dev/null && { exec 9>"$venv.lock"; } 2>/dev/null; then
        flock 9
        current "$venv" "$requirement" || build "$venv" "$requirement"
        exec 9>&-
    else
        build "$venv" "$requirement"
    fi
}
