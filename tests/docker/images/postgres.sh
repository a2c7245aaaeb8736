#!/bin/sh
# What the official image does at its start, as far as ours is used: owner, first set-up, server.
set -eu
data=/var/lib/postgresql/data
if [ "$(id -u)" = 0 ]; then
    chown postgres "$data" /var/run/postgresql
    exec setpriv --reuid=postgres --regid=postgres --init-groups sh "$0"
fi
if [ ! -s "$data/PG_VERSION" ]; then
    printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
    initdb -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 -E UTF8 >/dev/null
    rm /tmp/password
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D "$data" postgres >/dev/null
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
fi
exec postgres -D "$data" -c listen_addresses='*'
