#!/bin/bash
# The state transfer of Galera between nodes that share a file system: the donor copies its data folder over that of the
# joiner. mariadbd calls it as wsrep_sst_copy. The joiner prints "ready ADDRESS" and later "UUID:SEQNO DOMAIN". The donor
# prints "flush tables", waits for the file tables_flushed, copies, and prints "continue" and "done UUID:SEQNO".
set -euo pipefail
bypass=0 gtid="" domain=0
while [ $# -gt 0 ]; do
	case $1 in
	--role) role=$2; shift ;;
	--address) address=$2; shift ;;
	--datadir) data=${2%/}; shift ;;
	--gtid) gtid=$2; shift ;;
	--gtid-domain-id) domain=$2; shift ;;
	--parent) parent=$2; shift ;;
	--bypass) bypass=1 ;;
	esac
	shift
done
if [ "$role" = joiner ]; then
	rm -f "$data/sst_done"
	echo "ready $data"
	until [ -e "$data/sst_done" ]; do
		kill -0 "$parent" || exit 32
		sleep .05
	done
	cat "$data/sst_done"
	rm -f "$data/sst_done"
	exit
fi
if [ $bypass = 0 ]; then
	rm -f "$data/tables_flushed"
	echo "flush tables"
	until [ -s "$data/tables_flushed" ]; do sleep .02; done
	read -r gtid domain <"$data/tables_flushed" || :
	find "$address" -mindepth 1 ! -name 'galera.cache' ! -name grastate.dat ! -name gvwstate.dat ! -name 'sst_*' \
		-delete || :
	tar -C "$data" -c --exclude=./galera.cache --exclude=./grastate.dat --exclude=./gvwstate.dat \
		--exclude=./tables_flushed --exclude=./ibtmp1 . | tar -x -C "$address"
	rm -f "$data/tables_flushed"
	echo continue
fi
echo "$gtid ${domain:-0}" >"$address/sst_done.new"
mv "$address/sst_done.new" "$address/sst_done"
echo "done $gtid"
