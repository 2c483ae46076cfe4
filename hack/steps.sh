# shellcheck shell=bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by .ci/run and hack/night.sh: steps one after the other, each of which
# runs even if one before it failed, and a summary of them at the end. However that
# ends, the test bed is stopped. `limit` is how many seconds all together may take.
limit=${limit:-0}
summary=()
failed=0

finish() {
	local rc=$?
	trap - EXIT INT TERM
	# What was started is stopped, however this ends.
	((EUID != 0)) || [[ ! -d $KURYR_BED ]] || hack/bed/bed down >/dev/null 2>&1 || summary+=("FAIL  bed down: something may be left running")
	printf '\n== summary (%d min %d s)\n' $((SECONDS / 60)) $((SECONDS % 60))
	printf '%s\n' "${summary[@]}"
	((rc == 0)) || exit "$rc"
	exit "$failed"
}

# steps_begin: from here on the summary is printed at the end, whatever ends it.
steps_begin() {
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

# step NAME NEEDS COMMAND...: runs COMMAND. If NEEDS seconds are not left for it, it
# has failed: a run that left something out is not to pass for one that did not.
step() {
	local name=$1 needs=$2 start=$SECONDS rc=0
	shift 2
	if ((SECONDS + needs > limit)); then
		summary+=("FAIL  $name: no time left ($needs s wanted)")
		failed=1
		return
	fi
	printf '\n== %s: %s\n' "$name" "$*"
	timeout --kill-after=30 $((limit - SECONDS)) "$@" || rc=$?
	if ((rc == 0)); then
		summary+=("ok    $name ($((SECONDS - start)) s)")
	else
		summary+=("FAIL  $name ($((SECONDS - start)) s, exit $rc)")
		failed=1
	fi
}

# skip NAME WHY: says aloud what is missing, which is no failure.
skip() { summary+=("SKIP  $1: $2"); }

# bed_down [--wipe]: the cores are for what follows; with --wipe no object of what
# was before is there.
bed_down() { ((SECONDS >= limit)) || hack/bed/bed down "$@" >/dev/null 2>&1 || true; }
