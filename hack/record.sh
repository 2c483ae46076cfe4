#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Records anew what a real OpenStack answers, into openstacksim/internal/recorded/testdata:
#
#   hack/record.sh [SCENARIO...]     all, or e.g. ports trunks
#
# The cloud is that of OS_CLOUD and OS_CLIENT_CONFIG_FILE, as a user that may make
# projects; all that is made lies in two projects of its own and is removed.
# `eval "$(hack/bed/bed env)"` sets both for the test bed. `git diff` then says
# what this release of OpenStack does otherwise than the last one recorded.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
: "${OS_CLOUD:?names no cloud; for the test bed: eval \"\$(hack/bed/bed env)\"}" "${OS_CLIENT_CONFIG_FILE:?names no clouds.yaml}"
export CGO_ENABLED=0
data=openstacksim/internal/recorded/testdata

names=$(IFS='|' && echo "$*")
go test -count=1 -timeout=30m -run "^TestReal\$/^(${names:-.*})\$" "./${data%/testdata}" -record
git --no-pager diff --stat -- "$data"
