# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by `bed`: builds Kubernetes, etcd, containerd, the reference CNI plugins and
# upstream's e2e tests from Go modules, at the versions in go.mod.

ALL_SETS=(control cluster node images e2e)
# Not among all: oldest, the same as control of the oldest release that Kuryr supports, in bin/oldest.

# build SET...: makes what is not there or not up to date.
build() {
	local set
	command -v go >/dev/null || die "no go in the PATH (does sudo keep yours?)"
	for set; do
		[[ " ${ALL_SETS[*]} oldest " == *" $set "* ]] || die "no set $set; there are: ${ALL_SETS[*]} oldest"
		built "$set" && continue
		say "building set $set"
		mkdir -p "$BIN/cni" "$IMAGES"
		"build_$set"
		stamp "$set" >"$BIN/.$set"
	done
}

# What a set was made of, to tell whether it is to be made again: to ask Go takes
# ten seconds even when nothing has changed.
stamp() {
	(
		cd "$HERE" || exit
		go env GOVERSION GOARCH
		echo "$1"
		find kubernetes packimage -type f -name '*.go' -o -name go.mod -o -name go.sum \
			-o -path '*kubernetes/build.sh' -o -path '*kubernetes/images.sh' |
			sort | xargs sha256sum
	) | sha256sum
}
built() { [[ $(stamp "$1") == "$(cat "$BIN/.$1" 2>/dev/null)" ]]; }

# `kubectl version` and the version that a kubelet reports are set by the linker.
version_flags() {
	local version major minor pkg
	version=$(go_in list -m -f '{{.Version}}' k8s.io/kubernetes)
	IFS=. read -r major minor _ <<<"${version#v}"
	printf '%s' "-s -w"
	for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf ' -X %s' "$pkg.gitVersion=$version" "$pkg.gitMajor=$major" "$pkg.gitMinor=$minor" \
			"$pkg.gitTreeState=clean" "$pkg.buildDate=1970-01-01T00:00:00Z"
	done
}

# Go's cache is keyed by flags: -trimpath, or cgo, would compile all of Kubernetes
# once more beside what the project's own build and tests have put there.
MODULE=. # below kubernetes/, of which release
go_in() { (cd "$HERE/kubernetes/$MODULE" && CGO_ENABLED=0 GOWORK=off go "$@"); }

# link_module FOLDER PACKAGE...: of a module of its own, as CoreDNS and containerd want
# other dependencies than Kubernetes has.
link_module() {
	local new=$BIN/.new
	rm -rf "$new"
	mkdir "$new"
	(cd "$HERE/kubernetes/$1" && CGO_ENABLED=0 GOWORK=off go build -buildvcs=false -ldflags "-s -w" -o "$new/" "${@:2}")
	mv "$new"/* "$BIN/"
	rmdir "$new"
}

# link OUT PACKAGE...: OUT is a file, or a folder if it ends in /. A program that
# is running is not overwritten but replaced.
link() {
	local out=$1 new=$BIN/.new
	shift
	rm -rf "$new"
	mkdir "$new"
	go_in build -buildvcs=false -ldflags "$(version_flags)" -o "$new/" "$@"
	mv "$new"/* "$out"
	rmdir "$new"
}

build_control() {
	link "$BIN/etcd" go.etcd.io/etcd/server/v3
	link "$BIN/" k8s.io/kubernetes/cmd/{kube-apiserver,kubectl}
}

build_cluster() { link "$BIN/" k8s.io/kubernetes/cmd/{kube-controller-manager,kube-scheduler}; }

# containerd itself runs `loopback`; `bridge` and `host-local` are for comparison.
# Debian 12's containerd, 1.6, is too old for kubelets after 1.35.
build_node() {
	link_module containerd github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}
	link "$BIN/" k8s.io/kubernetes/cmd/kubelet
	local plugins=github.com/containernetworking/plugins/plugins
	link "$BIN/cni/" $plugins/main/{bridge,loopback} $plugins/ipam/host-local $plugins/meta/portmap
}

build_images() {
	(cd "$HERE/packimage" && CGO_ENABLED=0 go build -buildvcs=false -o "$BIN/packimage" .)
	link "$BIN/" k8s.io/kubernetes/test/images/{agnhost,regression-issue-74839} ./pause
	link_module coredns .
	pack_images
}

build_oldest() {
	local MODULE=oldest BIN=$BIN/oldest
	mkdir -p "$BIN"
	build_control
}

build_e2e() {
	go_in test -c -ldflags "$(version_flags)" -o "$BIN/.e2e.test" ./e2e
	mv "$BIN/.e2e.test" "$BIN/e2e.test"
}
