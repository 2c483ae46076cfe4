# shellcheck shell=bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that compile: Go says nothing meanwhile, for many minutes on a busy
# machine with an empty cache.

# progress_begins WHAT: says WHAT, and each half minute that it is still under way, until
# progress_ends or the end of the script.
progress_begins() {
	PROGRESS=$1 PROGRESS_BEGAN=$SECONDS
	echo "$PROGRESS ..."
	# It holds no lock of the caller's, and a script that was killed leaves it a second.
	(
		exec 9>&-
		next=$((SECONDS + ${PROGRESS_EVERY:-30}))
		while sleep 1 && kill -0 $$ 2>/dev/null; do
			((SECONDS >= next)) || continue
			next=$((SECONDS + ${PROGRESS_EVERY:-30}))
			echo "... still $PROGRESS: $((SECONDS - PROGRESS_BEGAN)) s"
		done
	) &
	PROGRESS_PID=$!
}

# progress_ends: says how long it took.
progress_ends() {
	kill "$PROGRESS_PID" 2>/dev/null || true
	wait "$PROGRESS_PID" 2>/dev/null || true
	echo "... done $PROGRESS: $((SECONDS - PROGRESS_BEGAN)) s"
}
