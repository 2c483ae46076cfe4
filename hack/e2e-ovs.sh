#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Kuryr on nodes of neutron-openvswitch-agent (ML2/OVS): brings up the test bed with
# Neutron's agents in OVN's place, deploys Kuryr, and runs test/e2e. What needs Octavia,
# OVN or IPv6 skips there and says so. TESTS and PART choose: hack/parts.sh. KEEP=1 leaves the bed up. The bed with OVN keeps its
# databases, and its nodes are made again.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
bed=hack/bed/bed
# shellcheck source=hack/parts.sh
. hack/parts.sh
step() { printf '\n%(%H:%M:%S)T  == %s\n' -1 "$*"; }

step "test bed with Neutron's agents"
export KURYR_BED_CLOUD=ovs
$bed install
$bed build control cluster node images
$bed down
trap '[[ -n ${KEEP:-} ]] || $bed down' EXIT
$bed up
unset KURYR_BED_CLOUD
eval "$($bed env)"
export CGO_ENABLED=0 KURYR_E2E=1
$bed check

step "Kuryr on the bed"
hack/demo/deploy.sh

step "test/e2e"
go test -count=1 -timeout=60m -v -run "$(tests_of ./test/e2e)" ./test/e2e
