#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh TIME: runs every fuzz target there is for TIME, one after the other.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
n=0
while read -r file; do
	# shellcheck disable=SC2013 # words it is
	for target in $(grep -o '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -c6-); do
		echo "== $target ($(dirname "$file"))"
		# Minimizing interesting inputs takes most of a short run by default.
		# A worker of the fuzzer is a process: none is to start an API server.
		env -u KUBEBUILDER_ASSETS go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 10x "./$(dirname "$file")"
		n=$((n + 1))
	done
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -l '^func Fuzz')
((n > 0)) || { echo "no fuzz target found" >&2; exit 1; }
echo "$n fuzz targets, $1 each, nothing found"
