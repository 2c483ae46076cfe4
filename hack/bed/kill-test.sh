#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
#
# kill-test.sh: the bed comes up over whatever a killed run has left.
# Takes the bed down, with all its state, again and again: about 20 minutes.
#   kill-test.sh [SECONDS...]   the moments at which `bed up` is killed
set -euo pipefail
HERE=$(dirname "$(readlink -f "$0")")
# shellcheck source=lib.sh
. "$HERE/lib.sh"
moments=("$@")
((${#moments[@]})) || moments=(0.2 0.6 1 1.5 2.5 4 7 10 12 15 18 22)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

bed() { "$HERE/bed" "$@" >"$log" 2>&1 || { cat "$log"; die "bed $*"; }; }

# recovers WHAT: the bed comes up, and its network works.
recovers() {
	local began=$SECONDS
	bed up
	local took=$((SECONDS - began))
	bed check
	say "ok      $1: up after $took s"
}

# killed_up SECONDS WHOM: `bed up` is killed after that time; WHOM is `group` for it
# with its children, as by a closed terminal, or `parent` for it alone.
killed_up() {
	local pid
	setsid "$HERE/bed" up >/dev/null 2>&1 &
	pid=$!
	sleep "$1"
	[[ $2 == parent ]] || pid=-$pid
	kill -KILL -- "$pid" 2>/dev/null || true
	wait "${pid#-}" 2>/dev/null || true
}

for moment in "${moments[@]}"; do
	for whom in group parent; do
		bed down --wipe
		killed_up "$moment" "$whom"
		recovers "first start, $whom killed at $moment s"
	done
	bed down
	killed_up "$moment" group
	recovers "later start, killed at $moment s"
done
for name in $(daemons '*'); do
	pid=$(main_pid "$name") || continue
	kill -KILL "$pid"
	bed up
	say "ok      $name killed"
done
recovers "every daemon killed, one by one"
# shellcheck disable=SC2046
kill -KILL $(members $(daemons '*'))
recovers "all killed at once"
