#!/bin/sh
# Makes .venv with everything a group needs, from the hashed requirements files. Quick where nothing changed.
#   scripts/setup.sh standalone   what `make demo` needs
#   scripts/setup.sh dev          that, and what `make test` and `make check` need
#   scripts/setup.sh quality      what `make demo` needs, and the scorers of `make quality`
set -eu
cd "$(dirname "$0")/.."
group=${1:-standalone}
python=${PYTHON:-python3}

say() { printf 'setup: %s\n' "$*" >&2; }

command -v "$python" >/dev/null 2>&1 || {
    say "no $python here. On Debian or Ubuntu: apt-get install python3 python3-venv"
    exit 1
}
"$python" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13)))' || {
    say "Python 3.11, 3.12 or 3.13 is needed, and $python is $("$python" -V 2>&1). Set PYTHON=python3.12, for example."
    exit 1
}

# What this environment was made from. The other groups hold all that `standalone` does, with the same versions.
stamp() {
    {
        "$python" -c 'import sys; print(sys.version)'
        pwd
        cat pyproject.toml "requirements/$1.txt" requirements/no-deps.txt scripts/setup.sh
    } | cksum
}
for made in dev quality standalone; do
    if [ -f ".venv/made-for-$made" ] && [ "$(cat ".venv/made-for-$made")" = "$(stamp "$made")" ]; then
        if [ "$made" = "$group" ] || [ "$group" = standalone ]; then exit 0; fi
    fi
done

if [ ! -x .venv/bin/python ]; then
    rm -rf .venv
    "$python" -m venv .venv || {
        say "$python cannot make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv"
        rm -rf .venv
        exit 1
    }
fi
rm -f ".venv/made-for-$group"
say "installing the $group packages into .venv (about 300 MB to download the first time)"
# uv does in seconds what pip does in a minute; without it pip does the same work.
uv=$(command -v uv || true)
if [ -z "$uv" ] && .venv/bin/python -m pip install -q --disable-pip-version-check \
    $(sed -n '/^uv==/,/^[^ ]/p' requirements/dev.txt | sed -n '1s/ .*//p') 2>/dev/null; then
    uv=.venv/bin/uv
fi
install() {
    if [ -n "$uv" ]; then
        VIRTUAL_ENV=$PWD/.venv "$uv" pip install -q "$@"
    else
        .venv/bin/python -m pip install -q --disable-pip-version-check "$@"
    fi
}
install --require-hashes -r "requirements/$group.txt"
install --require-hashes --no-deps -r requirements/no-deps.txt
# The project itself, as a link to src/: a path file does it, and needs no build.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$PWD/src" >"$site/voxint-source.pth"
for name in voxint voxint-broker; do
    module=$(printf '%s' "$name" | tr - _)
    [ "$name" = voxint ] && entry=voxint.cli.main || entry=$module.cli
    # No path in the first line: the system takes neither a space there nor more than some hundred characters.
    cat >".venv/bin/$name" <<COMMAND
#!/bin/sh
'''exec' "$PWD/.venv/bin/python" "\$0" "\$@"
' '''
import sys

from $entry import main

sys.exit(main())
COMMAND
    chmod +x ".venv/bin/$name"
done
# Where no process may keep what it compiles, each one would compile everything anew: more than half of what a command
# or a test that starts processes then takes.
if [ -n "${PYTHONDONTWRITEBYTECODE:-}" ]; then
    say "compiling, as PYTHONDONTWRITEBYTECODE is set"
    nice .venv/bin/python -m compileall -q -j 0 "$site" src >/dev/null 2>&1 || true
fi
stamp "$group" >".venv/made-for-$group"
say "done"
