// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package pool plans one pool of ports: which pod gets which port, how many ports to request from
// the SDN, and which ports to recycle, keep or delete. It is pure: plain data in, plain data out,
// the time is an argument, and the same input gives the same output, order included. The caller
// executes the plan and remembers running requests.
package pool

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Settings is what a pool's key has that does not come from the pod.
type Settings struct {
	ProjectID        string
	NetworkID        string
	SubnetIDs        []string // one address of each; the first is the pod's first
	SecurityGroupIDs []string // in any order
	VIFType          string
	ParentPortID     string // of the virtual machine that the node is, empty for bare metal
	Namespace        string // if its pods have a pool of their own
}

// KeyOn returns the key of a pool of a node.
func KeyOn(node string, s Settings) v1.PoolKey {
	groups := slices.Clone(s.SecurityGroupIDs)
	slices.Sort(groups)
	return v1.PoolKey{
		ProjectID:        s.ProjectID,
		NetworkID:        s.NetworkID,
		SubnetIDs:        slices.Clone(s.SubnetIDs),
		NodeName:         node,
		ParentPortID:     s.ParentPortID,
		SecurityGroupIDs: slices.Compact(groups),
		Namespace:        s.Namespace,
		VIFType:          s.VIFType,
	}
}

// nodePart is how much of a node's name is in a pool's: with the hash the name
// stays under 32 characters, so that an SDN's tag (Neutron: 60) can hold it.
const nodePart = 20

// Name returns the name of the pool of key: the node's, shortened, and ten
// hexadecimal digits of a hash of all of the key. A field added to PoolKey must
// be left out of JSON while empty, or every pool gets another name.
func Name(key v1.PoolKey) string {
	canonical, err := json.Marshal(key)
	if err != nil {
		panic(err) // strings and slices of strings only
	}
	sum := sha256.Sum256(canonical)
	node := key.NodeName
	if len(node) > nodePart {
		node = strings.TrimRight(node[:nodePart], ".-")
	}
	return node + "-" + hex.EncodeToString(sum[:5])
}

// Interface is the name of the interface that a pod has its port for.
const Interface = "eth0"

// Wants reports whether pod is to have a port if it has none: it is scheduled,
// not on the host's network, neither finished nor on its way out.
func Wants(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !pod.Spec.HostNetwork && pod.DeletionTimestamp.IsZero() && !Finished(pod)
}

// Finished reports whether none of pod's containers runs or ever will again.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Ref names a pool and its node. A shard of the controller will own nodes: the pods, ports and
// pools of a node stay together.
type Ref struct {
	Pool, Node string
}

// Compare orders pools by name, then by node.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(strings.Compare(r.Pool, o.Pool), strings.Compare(r.Node, o.Node))
}
