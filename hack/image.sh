#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Builds the container image into bin/kuryr-image.tar, for `ctr images import`
# and `docker load`. Needs Go and no container engine. Its trusted certificates
# are those of this machine, and so is its architecture.
set -euo pipefail
[[ $(go env GOOS GOARCH) == "$(GOOS='' GOARCH='' go env GOHOSTOS GOHOSTARCH)" && $(go env GOOS) == linux ]] || {
	echo "image.sh: builds on Linux, for the architecture of the machine that it runs on" >&2
	exit 1
}
cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=hack/progress.sh
. hack/progress.sh
names=("${@:-registry.invalid/kuryr:dev}")
export CGO_ENABLED=0
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

flags=(-trimpath -ldflags="-s -w" -buildvcs=auto)
git rev-parse HEAD >/dev/null 2>&1 || flags+=(-buildvcs=false)
mkdir -p bin "$root"/{etc/ssl/certs,run,tmp,usr/local/bin,var}
progress_begins "compiling kuryr and kuryr-cni"
go build "${flags[@]}" -o "$root/usr/local/bin/" ./cmd/kuryr ./cmd/kuryr-cni
progress_ends
ln -s ../run "$root/var/run" # runtimes name network namespaces by either path
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
	if [[ -r $bundle ]]; then
		cp "$bundle" "$root/etc/ssl/certs/ca-certificates.crt"
		break
	fi
done
go run ./hack/bed/packimage -root "$root" -out bin/kuryr-image.tar -entrypoint /usr/local/bin/kuryr "${names[@]}"
echo "bin/kuryr-image.tar: ${names[*]}, $(($(stat -c %s bin/kuryr-image.tar) >> 20)) MiB"
