// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/network"
)

// NamespaceConfig is what the configuration says of networks of namespaces and of projects.
type NamespaceConfig struct {
	Routers    []Named // of networks, networks.namespaces and projects
	OwnRouters []Named // external networks of the routers that Kuryr makes for namespaces
	Projects   []Named // projects[].projectID
	Groups     []Groups
	// Given are existing networks besides that of pods: of networks.given and of nodes.
	Given []Given
}

// Named is the ID of an object of the cloud, and the field of the configuration that has it.
type Named struct{ Field, ID string }

// Groups are the security groups of some pods, and the field that has them.
type Groups struct {
	Field string
	IDs   []string
}

// Given is an existing network.
type Given struct {
	Field     string // that has the subnets
	NetworkID string // empty: that of the subnets
	SubnetIDs []string
}

// Namespace is a namespace that has, or may get, a network of its own.
type Namespace struct {
	network.Choice
	Name string
}

// makes reports whether Kuryr makes the namespace's network.
func (n *Namespace) makes() bool {
	return n.Mode == v1.NetworkNamespace || n.Mode == v1.NetworkFlat
}
