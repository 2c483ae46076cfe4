#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Process 1 of a node, started by node.sh in the node's namespaces:
#   node-init.sh NAME DIRECTORY BIN ADDRESS[,ADDRESS] KUBECONFIG
# It lays out the node's own view of the file system and keeps containerd and the
# kubelet running, as an init system would.
set -euo pipefail
name=$1 node=$2 bin=$3 address=$4 kubeconfig=$5

hostname "$name"
mount --make-rprivate /

# The node sees the machine's files and writes its own over them, so that what a
# pod installs or stores there by hostPath is neither the machine's nor the other
# node's. $BED may not be below these: an overlay cannot hold its own upper layer.
for dir in etc opt usr var/lib var/log; do
	mkdir -p "$node/layer/$dir"/{upper,work}
	mount -t overlay overlay \
		-o "lowerdir=/$dir,upperdir=$node/layer/$dir/upper,workdir=$node/layer/$dir/work" "/$dir"
done
# These are to be empty at first even if the machine has a cluster of its own,
# and containerd's images cannot be an overlay on an overlay.
for dir in etc/cni opt/cni var/lib/{cni,containerd,kubelet} var/log/{containers,pods}; do
	mkdir -p "/$dir" "$node/own/$dir"
	mount --bind "$node/own/$dir" "/$dir"
done
mkdir -p /etc/cni/net.d /opt/cni/bin
cp "$bin"/cni/* /opt/cni/bin/
echo "$name" >/etc/hostname

mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/{lock,netns,openvswitch}
mount --bind "$node/ovs" /run/openvswitch # the node's Open vSwitch: see chassis.sh

# A /sys that shows this network namespace, with the machine's control groups. A
# fresh /sys alone (as `ip netns exec` mounts) would hide them.
mount --rbind /sys/fs/cgroup /mnt
mount -t sysfs sysfs /sys
mount --rbind /mnt /sys/fs/cgroup
umount -l /mnt
# Now all is there. Pods may ask for mounts that propagate, /run/netns for one.
mount --make-rshared /

keep() { # LOG COMMAND...
	local log=$1
	shift
	while true; do
		"$@" >>"$log" 2>&1 || true
		sleep 1
	done
}
PATH=$bin:$PATH keep "$node/log/containerd.log" containerd --config "$node/containerd.toml" &
until [[ -S /run/containerd/containerd.sock ]]; do sleep 0.1; done
keep "$node/log/kubelet.log" "$bin/kubelet" --config="$node/kubelet.yaml" --kubeconfig="$kubeconfig" \
	--hostname-override="$name" --node-ip="$address" --root-dir=/var/lib/kubelet &
# Bash reaps what the shims leave behind, too.
wait
