# What the scripts in this folder share: a server of their own, steps that are printed, loud failures.
# Sourced by them; needs `mavstream` in the path, or PYTHON="path/to/python" that has it installed.

set -euo pipefail

work=$(mktemp -d "${TMPDIR:-/tmp}/mavstream-example.XXXXXX")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
started=()
if [ -n "${PYTHON:-}" ]; then mavstream=("$PYTHON" -m mavstream); else mavstream=("$(command -v mavstream || echo mavstream)"); fi

mavstream() { "${mavstream[@]}" "$@"; }
# In the background use "${mavstream[@]}": `mavstream ... &` is a shell with the command as its child.

finish() {
    local code=$?
    for process in ${started[@]+"${started[@]}"}; do kill "$process" 2>/dev/null && wait "$process" || true; done
    if [ "$code" -ne 0 ]; then
        echo "FAILED (exit code $code) in: ${current:-the beginning}" >&2
        if [ -f "$work/server.log" ]; then tail -n 20 "$work/server.log" >&2; fi
    fi
    rm -rf "$work"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

step() {
    current=$1
    echo
    echo "== $1"
}

run() {
    echo "\$ $*"
    "$@"
}

# expect TEXT COMMAND...: run a command and fail unless it prints the text.
expect() {
    local text=$1 printed
    shift
    echo "\$ $*"
    printed=$("$@" 2>&1) || { echo "$printed"; exit 1; }
    echo "$printed"
    case $printed in
    *"$text"*) ;;
    *)
        echo "expected '$text' in the output" >&2
        exit 1
        ;;
    esac
}

# serve: start a server on a free port with its data in the work folder, and wait until it takes work.
serve() {
    echo "\$ mavstream serve --data data --port 0"
    : > "$work/server.log"
    "${mavstream[@]}" serve --data "$work/data" --port 0 --no-page --log text 2>> "$work/server.log" &
    started+=("$!")
    local waited=0
    until MAVSTREAM_URL=$(sed -n 's/.*listening.* url=\([^ ]*\).*/\1/p' "$work/server.log") && [ -n "$MAVSTREAM_URL" ]; do
        kill -0 "${started[-1]}" 2>/dev/null || { echo "the server has ended" >&2; exit 1; }
        waited=$((waited + 1))
        [ "$waited" -lt 1200 ] || { echo "the server did not start" >&2; exit 1; }
        sleep 0.1
    done
    export MAVSTREAM_URL
    echo "$MAVSTREAM_URL"
}

cd "$work"
