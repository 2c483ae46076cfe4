# shellcheck shell=bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that run several kinds of tests: which of them, by PARTS (all), and
# which tests of a folder, by TESTS, a regular expression, or by PART, as 2/3 for each
# third one from the second on.

# wanted KIND: whether that kind of tests is to run.
wanted() { [[ -z ${PARTS:-} || " $PARTS " == *" $1 "* ]]; }

# tests_of FOLDER: a regular expression of the tests that are to run there.
tests_of() {
	if [[ -n ${TESTS:-} ]]; then
		echo "^($TESTS)\$"
	elif [[ -n ${PART:-} ]]; then
		go test -list '^Test' "$1" | grep '^Test' | awk -v i="${PART%/*}" -v n="${PART#*/}" 'NR % n == i % n' | paste -sd'|' | sed 's/.*/^(&)$/'
	else
		echo .
	fi
}
