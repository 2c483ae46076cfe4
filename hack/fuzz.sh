#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh TIME [FOLDER...]: runs every fuzz target there is, or those below the folders, for
# TIME each, one after the other.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

# fuzz TARGET FOLDER TIME. Before Go 1.27 the end of TIME may itself be reported as
# a failure, without an input that fails (go.dev/issue/75804): asked once more then.
fuzz() {
	local out rc attempt
	out=$(mktemp)
	for attempt in 1 2 3; do
		rc=0
		# Minimizing interesting inputs takes most of a short run by default.
		# A worker of the fuzzer is a process: none is to start an API server.
		env -u KUBEBUILDER_ASSETS go -C "$2" test -run '^$' -fuzz "^$1\$" -fuzztime "$3" -fuzzminimizetime 10x . 2>&1 | tee "$out" || rc=$?
		if ((rc == 0)) || ! grep -A1 "^--- FAIL: $1 " "$out" | grep -qx '    context deadline exceeded'; then
			break
		fi
		echo "== $1: its time ended it, and nothing was found (attempt $attempt of 3)"
	done
	rm -f "$out"
	return "$rc"
}

files=('*_test.go')
(($# == 1)) || files=("${@:2}") files=("${files[@]/%//*_test.go}")
n=0
while read -r file; do
	# shellcheck disable=SC2013 # words it is
	for target in $(grep -o '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -c6-); do
		echo "== $target ($(dirname "$file"))"
		fuzz "$target" "$(dirname "$file")" "$1"
		n=$((n + 1))
	done
done < <(git ls-files -co --exclude-standard "${files[@]}" | xargs grep -l '^func Fuzz')
((n > 0)) || { echo "no fuzz target found" >&2; exit 1; }
echo "$n fuzz targets, $1 each, nothing found"
