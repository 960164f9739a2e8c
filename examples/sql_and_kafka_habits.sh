#!/usr/bin/env bash
# The first ten minutes with habits from SQL and Kafka.
# A stream as a topic and a table, INSERT, continuous queries, a request that is repeated, consumers with offsets.

source "$(dirname "${BASH_SOURCE[0]}")/session.sh"

step "Start a server"
serve

step "Create a topic, which has columns, and a query that runs on"
cat > shop.sql <<'SQL'
CREATE STREAM orders (at TIMESTAMP NOT NULL, product TEXT NOT NULL, price DOUBLE NOT NULL, WATERMARK FOR at AS at);
CREATE QUERY dear AS SELECT product, price FROM orders WHERE price > 100;
CREATE QUERY sums AS
    SELECT product, count(*) AS n, sum(price) AS total, window_end
    FROM orders GROUP BY product, TUMBLE(at, INTERVAL '1' MINUTE);
INSERT INTO orders VALUES ('2026-03-01T12:00:00Z', 'bike', 700.0), ('2026-03-01T12:00:10Z', 'lamp', 20.0);
SQL
run cat shop.sql
run mavstream sql -f shop.sql
expect "orders" mavstream sql -c "SHOW STREAMS"

step "Produce: a file, and a request that is repeated, which adds its row once"
cat > orders.csv <<'CSV'
at,product,price
2026-03-01T12:00:20Z,lamp,30.0
2026-03-01T12:00:40Z,bike,900.0
2026-03-01T12:01:30Z,lamp,150.0
CSV
run mavstream feed orders=orders.csv --producer shop
for attempt in 1 2; do
    run curl --silent --show-error --fail --header 'Content-Type: application/json' \
        --header 'Idempotency-Key: order-4711' "$MAVSTREAM_URL/v1/streams/orders/tuples" \
        --data '[{"at": "2026-03-01T12:01:40Z", "product": "bell", "price": 9.0}]'
    echo
done
expect '"position": 6' mavstream stream show orders -o json

step "Consume: a SELECT from the oldest row, and results of a query from an offset on"
expect '"product":"lamp"' mavstream sql --from earliest --limit 5 -o json -c "SELECT product, price FROM orders"
expect '"price":900.0' mavstream query watch dear --after 0 --limit 1 -o json
expect '"total":1600.0' mavstream query watch sums --limit 2 -o json

step "Consume without a client: JSON lines with curl"
expect '"price":150.0' curl --silent --no-buffer --max-time 60 --header 'Accept: application/x-ndjson' \
    "$MAVSTREAM_URL/v1/queries/dear/results?after=1&follow=false"

step "A mistake is explained with its place"
if mavstream sql -c 'SELECT * FROM orders WHERE product = "bike"' 2> mistake.txt; then
    echo "expected an error" >&2
    exit 1
fi
expect "single quotes" cat mistake.txt

echo
echo "done: topics are streams, consumers read from offsets, requests are repeated without harm"
