#!/bin/sh
# Makes .venv as lock.txt and settings.ini say, and does nothing when it is already so.
#   environment.sh          packages of the lock, then the project itself
#   LIGHT=1 environment.sh  the same from lock-light.txt: without torch, for Part I and MGBI; a full .venv serves too, and a light one grows when asked
#   environment.sh EXTRA    the same, then the packages of one extra of settings.ini
#   environment.sh python   only print the Python that would be used
# .venv/.packages and .venv/.project say what a finished step installed; a step that was cut short leaves neither.
set -eu
cd "$(dirname "$0")/.."
PATH=$(echo "$PATH" | tr ':' '\n' | grep -vxF "$PWD/.venv/bin" | paste -sd: -) # .venv is not made from itself
need=$(sed -n 's/^min_python *= *//p' settings.ini)
again="then run the same command again"
say() { echo "$*" >&2; }
die() { say "$*"; exit 1; }

fit() { # is $1 a Python that is new enough and can make an environment? sets $why when it is not
    found=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || { why="$1 does not run"; return 1; }
    "$1" -c "import sys; sys.exit(sys.version_info[:2] < tuple(map(int, '$need'.split('.'))))" || { why="$1 is Python $found"; return 1; }
    "$1" -c 'import venv, ensurepip' 2>/dev/null || { why="$1 is Python $found without venv or pip (on Debian and Ubuntu: install python3-venv)"; return 1; }
}
choose() { # prints the first Python that fits
    reasons=
    for p in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if fit "$p"; then command -v "$p"; return; fi
        reasons="$reasons; $why"
    done
    die "Python >= $need with venv and pip is needed${reasons}. Install one, or name it: PYTHON=/path/to/python$need, $again."
}
install() { # pip, quiet but for errors; $1 says what is installed
    what=$1; shift
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input "$@" || die \
        "The $what could not be installed: pip says why above. Mend it (network, proxy, PIP_INDEX_URL, disk space), $again."
}

[ "${1:-}" = python ] && { choose; exit; }
lock=requirements/lock.txt size="some minutes and 7 GB (LIGHT=1 before the command leaves torch out: a minute and 1 GB)"
packages="$(cksum < $lock) $PWD"
project="$(cat settings.ini setup.py pyproject.toml | cksum) $PWD"
have() { [ "$(cat ".venv/.$1" 2>/dev/null)" = "$2" ]; }
if [ -n "${LIGHT:-}" ] && ! have packages "$packages"; then
    lock=requirements/lock-light.txt size="about a minute and 1 GB"
    packages="$(cksum < $lock) $PWD"
fi

if ! have packages "$packages" || ! .venv/bin/python -c '' 2>/dev/null; then
    grows=no; have packages "$(cksum < requirements/lock-light.txt) $PWD" && .venv/bin/python -c '' 2>/dev/null && grows=yes
    rm -f .venv/.packages .venv/.project .venv/.extra-*
    if [ $grows = yes ]; then
        say "Adding the packages of $lock to .venv: $size, once."
    elif [ -e .venv/.begun ] || ! .venv/bin/python -c '' 2>/dev/null; then
        python=$(choose)
        say "Setting up .venv with $("$python" -V): $size, once."
        rm -rf .venv && mkdir .venv && touch .venv/.begun
        "$python" -m venv .venv || die "$python could not make .venv: see above. Mend it or name another: PYTHON=/path/to/python$need, $again."
    else
        fit .venv/bin/python || die "Your .venv does not fit ($why; >= $need is needed): move it away, $again."
        say "Installing the packages of $lock into your .venv."
    fi
    install "packages of $lock" --require-hashes -r "$lock"
    echo "$packages" > .venv/.packages
fi
if ! have project "$project"; then
    rm -f .venv/.project .venv/.extra-*
    install "project itself" --no-deps --no-build-isolation -e .
    echo "$project" > .venv/.project
fi
if [ -n "${1:-}" ] && ! have "extra-$1" "$project"; then
    install "extra '$1'" --no-build-isolation -e ".[$1]"
    echo "$project" > ".venv/.extra-$1"
fi
