#!/usr/bin/env bash
# The time from a clean clone to the first answer: clone, install, start a server, feed it, read a result.
# Prints the seconds of each part. What pip downloads depends on its cache and the network: --no-cache-dir
# in PIP_ARGS measures without the cache.

source "$(dirname "${BASH_SOURCE[0]}")/session.sh"
source_of=${1:-$(git -C "$here" rev-parse --show-toplevel)}
began=$(date +%s.%N)
last=$began

lap() {
    local now
    now=$(date +%s.%N)
    awk -v what="$1" -v a="$last" -v b="$now" 'BEGIN { printf "%-28s %6.1f s\n", what, b - a }' >> laps.txt
    last=$now
}

step "Clone"
run git clone --quiet --depth 1 "file://${source_of#file://}" clone 2> /dev/null || run git clone --quiet --depth 1 "$source_of" clone
lap "clone"

step "Install what a server needs"
run python3 -m venv venv
# shellcheck disable=SC2086
run venv/bin/pip install --quiet --disable-pip-version-check ${PIP_ARGS:-} "./clone[server]"
lap "install"

step "Start a server"
mavstream=("$work/venv/bin/mavstream")
serve
lap "server ready"

step "The first answer"
"${mavstream[@]}" feed --sample --create --stamp now --rate 100 --loop > /dev/null 2>&1 &
started+=("$!")
expect '"room"' mavstream sql -o json --from earliest --limit 1 -c "SELECT * FROM temperature"
lap "first answer"

step "Times"
last=$began
lap "from clone to first answer"
cat laps.txt
