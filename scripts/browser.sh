#!/bin/sh
# Makes ready what the browser tests and the screenshots need: playwright in .venv, and the system's Chromium.
# Exit status 3 where one of them is not here and cannot be installed; what is missing is said on stderr.
set -eu
cd "$(dirname "$0")/.."
uv=$(command -v uv || true)
[ -n "$uv" ] || [ ! -x .venv/bin/uv ] || uv=.venv/bin/uv
made=.venv/made-for-browser
want=$(cksum requirements/browser.txt)
if [ ! -f "$made" ] || [ "$(cat "$made")" != "$want" ]; then
    if [ -n "$uv" ]; then
        VIRTUAL_ENV=$PWD/.venv "$uv" pip install -q --require-hashes -r requirements/browser.txt
    else
        .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/browser.txt
    fi || {
        echo "browser: playwright cannot be installed: is the package index reachable?" >&2
        exit 3
    }
    printf '%s\n' "$want" >"$made"
fi
find_it() { command -v "${CHROMIUM:-chromium}" || command -v chromium-browser || command -v google-chrome || true; }
if [ -z "$(find_it)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "browser: installing chromium (about 120 MB)" >&2
    apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 \
        || { apt-get update -qq >/dev/null 2>&1 && apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1; } || true
fi
[ -n "$(find_it)" ] || {
    echo "browser: there is no Chromium here. On Debian or Ubuntu: apt-get install chromium. Elsewhere: CHROMIUM=/path/to/it" >&2
    exit 3
}
