#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Records anew what a real OpenStack answers, into openstacksim/internal/recorded/testdata/RELEASE:
#
#   hack/record.sh [SCENARIO...]     all, or e.g. ports trunks
#
# The cloud is that of OS_CLOUD and OS_CLIENT_CONFIG_FILE, as a user that may make
# projects; all that is made lies in two projects of its own and is removed.
# `eval "$(hack/bed/bed env)"` sets both for the test bed, and KURYR_BED_RELEASE.
# `git diff` then says what this cloud does otherwise than the last one recorded, and
# `diff -r` of two releases' folders what differs between these.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
: "${OS_CLOUD:?names no cloud; for the test bed: eval \"\$(hack/bed/bed env)\"}" "${OS_CLIENT_CONFIG_FILE:?names no clouds.yaml}"
export CGO_ENABLED=0
tests=openstacksim/internal/recorded

names=$(IFS='|' && echo "$*")
go -C "$tests" test -count=1 -timeout=30m -run "^TestReal\$/^(${names:-.*})\$" -record
git --no-pager diff --stat -- "$tests/testdata"
