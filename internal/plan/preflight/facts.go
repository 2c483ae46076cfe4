// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Facts is all that the checks depend on. Check does not change it.
type Facts struct {
	Config    Config
	Networks  sdn.NetworkSurvey
	Balancing sdn.BalancingSurvey // zero if Config.ServiceSubnetIDs is empty
	Cluster   Cluster
}

// Config is what the configuration says, with the defaults filled in.
type Config struct {
	ProjectID string // of ports; empty: the credential's own
	// PodSubnets are the entries of pods.subnetIDs: a pod gets an address of one subnet of each.
	PodSubnets        [][]string
	SecurityGroupIDs  []string // pods.securityGroupIDs
	MoreGroupIDs      []string // of the rules of pods.securityGroups
	NodeMTU           int      // node.mtu; 0: no bound
	ServiceProjectID  string   // services.projectID; empty: the credential's own
	ServiceSubnetIDs  []string // services.subnetIDs; empty: Services are left alone
	Provider          string   // services.provider
	ExternalNetworkID string   // services.externalNetworkID
	ExternalSubnetID  string   // services.externalSubnetID
	WarmUp            bool     // pools.warmUp: nodes have a pool before their first pod
	Trunks            bool     // some nodes are virtual machines with trunks (vlan)
	Pairs             bool     // some nodes are virtual machines with address pairs (macvlan)
	NamespaceConfig
}

// PodSubnetIDs returns the subnets that pods may have addresses of.
func (c *Config) PodSubnetIDs() []string { return slices.Concat(c.PodSubnets...) }

// Cluster is what the Kubernetes API says.
type Cluster struct {
	Nodes sdn.Read[[]Node]
	Pools sdn.Read[[]Pool]
	// Services are those that get load balancers.
	Services sdn.Read[[]Service]
	// Balancers counts the load balancers that exist for them.
	Balancers sdn.Read[int]
	// ServiceCIDRs is ErrNotFound where the API server has no such kind.
	ServiceCIDRs sdn.Read[[]netip.Prefix]
	// Namespaces are those that have, or may get, a network of their own.
	Namespaces sdn.Read[[]Namespace]
	// Policies says whether there are NetworkPolicies.
	Policies sdn.Read[bool]
}

// Pool is a pool of ports.
type Pool struct {
	Node      string
	Namespace string // empty: it is for pods of all namespaces
	ProjectID string // of its ports; empty: the credential's own
	Elsewhere bool   // its ports are not in the subnets of pods.subnetIDs
	Min       int    // free ports at least
	Free      int    // free now, or soon
	Waiting   int    // pods that wait for a port
}

// Node is a node of the cluster that runs, or may run, pods of Kuryr.
type Node struct {
	Name      string
	Addresses []netip.Addr
	Min       int    // free ports that its pool keeps at least
	VIFType   string // of its ports; empty: as Neutron says of each port
	Virtual   bool   // its pods' ports hang on the port of the machine, and no agent serves them
	// ControlPlane says that its pods may all be on the host network.
	ControlPlane bool
	Away         bool // its kubelet does not answer, or it is cordoned
}

// Service is a Service that gets load balancers.
type Service struct {
	Namespace, Name string
	ClusterIPs      []netip.Addr
	Ports           int  // each is a listener and a pool of each load balancer
	Members         int  // of all pools of all load balancers
	DNS             bool // it is the cluster's DNS
}

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
