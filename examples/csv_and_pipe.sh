#!/usr/bin/env bash
# The first ten minutes with CSV files and a live pipe of sensor readings.
# A file with headers, decimal commas and a bad cell; a pipe whose rows are answered while it goes on.

source "$(dirname "${BASH_SOURCE[0]}")/session.sh"

step "A file as instruments write them"
cat > readings.csv <<'CSV'
Time;Room;Temperature (C)
2026-03-01 12:00:00;kitchen;21,0
2026-03-01 12:00:03;attic;29,0
2026-03-01 12:00:06;kitchen;2l,5
2026-03-01 12:00:09;attic;31,0
2026-03-01 12:00:12;kitchen;21,5
2026-03-01 12:00:15;attic;33,0
2026-03-01 12:00:18;kitchen;22,0
2026-03-01 12:00:21;attic;34,5
2026-03-01 12:00:24;kitchen;22,5
2026-03-01 12:00:27;attic;35,0
2026-03-01 12:00:30;kitchen;22,5
2026-03-01 12:00:33;attic;36,0
CSV
cat readings.csv

step "Start a server"
serve

step "Feed the file: the stream is created, the bad cell is counted and named"
expect "line 4, column" mavstream feed readings=readings.csv --create --delimiter ";" --decimal ,
expect "kitchen" mavstream stream rows readings

step "Ask: means of ten seconds, from the oldest row on"
expect '"room":"attic","mean":30.0' mavstream sql -o json --from earliest --limit 2 -c \
    "SELECT room, avg(Temperature_C) AS mean FROM readings GROUP BY room, TUMBLE(Time, INTERVAL '10' SECOND)"

step "A pipe: a query that waits for what a sensor sends"
run mavstream stream create live --field room:string --field celsius:float
run mavstream sql -c "CREATE QUERY hot AS SELECT * FROM live WHERE celsius > 30"

# The sensor writes a reading, waits until that was answered, and only then writes the next one.
mkfifo sensor
"${mavstream[@]}" feed live=- --format ndjson < sensor > fed.txt 2>&1 &
feeder=$!
started+=("$feeder")
exec 3> sensor
echo '{"room": "attic", "celsius": 33.5}' >&3
expect '"celsius":33.5' mavstream query watch hot --limit 1 -o json
echo '{"room": "attic", "celsius": 20.0}' >&3
echo '{"room": "attic", "celsius": 41.0}' >&3
expect '"celsius":41.0' mavstream query watch hot --after 0 --limit 1 -o json
exec 3>&-
wait "$feeder"
run cat fed.txt

step "Say that no more will come: the query finishes"
run mavstream stream complete live > /dev/null
expect '"results": 2' mavstream query show hot -o json

echo
echo "done: files and pipes are fed, results are read while rows come"
