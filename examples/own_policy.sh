#!/usr/bin/env bash
# The first ten minutes with a scheduling policy of one's own: simulated, compared, then a policy on a live server.

source "$(dirname "${BASH_SOURCE[0]}")/session.sh"
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"

step "A policy is a priority"
run sed -n '/^class/,$p' "$here/shortest_first.py"

step "Simulate it beside those that there are, on a workload at 90 % utilisation"
run mavstream simulate A --compare rr,cqc,shortest_first:ShortestFirst --utilisation 0.9 --seconds 2 --seed 1

step "Several seeds and loads, as lines of CSV"
run mavstream simulate A --policy shortest_first:ShortestFirst --seeds 2 --sweep utilisation=0.7,0.9 \
    --seconds 1 --csv runs.csv
run head -n 3 runs.csv
[ "$(wc -l < runs.csv)" -gt 4 ]

step "On a live server, policies are changed while queries run"
serve
expect '"policy": "rr"' mavstream scheduler set rr -o json
expect '"policy": "cqc"' mavstream scheduler set cqc -o json

echo
echo "done: docs/extending.md says how to add the policy to the server and which tests it must pass"
