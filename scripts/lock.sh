#!/bin/sh
# Writes requirements/*.txt anew from pyproject.toml: exact versions, hashes, no registry's address.
# `scripts/lock.sh --check` compares instead, and fails where a file is out of date. Without a way to the package index
# nothing can be compared, and it says so.
set -eu
cd "$(dirname "$0")/.."
out=requirements
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
if [ "${1:-}" = "--check" ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out" "$errors"' EXIT
    cp requirements/*.txt "$out"/
fi
compile() {
    "${UV:-uv}" pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --no-annotate \
        --python-version 3.11 "$@" 2> "$errors" || {
        status=$?
        cat "$errors" >&2
        if [ "$out" != requirements ] && grep -q 'error sending request\|dns error\|Failed to fetch' "$errors"; then
            echo "lock: NOT COMPARED, the package index cannot be reached" >&2
            exit 0
        fi
        exit "$status"
    }
}
compile pyproject.toml -o "$out/app.txt"
compile pyproject.toml --extra standalone --extra offline -c "$out/app.txt" -o "$out/standalone.txt"
compile pyproject.toml --extra standalone --extra offline --group dev -c "$out/standalone.txt" -o "$out/dev.txt"
compile --group browser -c "$out/dev.txt" -o "$out/browser.txt"
compile pyproject.toml --extra standalone --extra offline --group quality -c "$out/dev.txt" -o "$out/quality.txt"
for group in models-cpu whisper-cuda pyannote-cuda titanet-cuda; do
    compile --group "$group" -o "$out/$group.txt"
done
compile --no-deps requirements/no-deps.in -o "$out/no-deps.txt"
if [ "$out" != requirements ]; then
    for name in app standalone dev quality browser models-cpu whisper-cuda pyannote-cuda titanet-cuda no-deps; do
        diff -u "requirements/$name.txt" "$out/$name.txt" || {
            echo "requirements/$name.txt is out of date: run scripts/lock.sh" >&2
            exit 1
        }
    done
fi
