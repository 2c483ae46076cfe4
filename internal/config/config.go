// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package config reads Kuryr's one configuration file into a checked struct.
// It is strict: an unknown field is an error, and every fault is reported at
// once, with its line and path. Flags carry only file paths, addresses and the
// log level; the cloud's credential is where every OpenStack client has it.
//
// config/base/kuryr.yaml in the source tree shows and explains every field.
package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a configuration file has to say of itself.
const (
	APIVersion = "kuryr.openstack.org/v1alpha1"
	Kind       = "KuryrConfiguration"
)

// Config is the file, checked, with defaults filled in. Load and Watch hand
// out a fresh one each time; who gets it does not change it, so that it may be
// shared between goroutines.
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// ClusterID marks what this cluster owns in the cloud. Empty: the UID of
	// the namespace kube-system. Read at start only.
	ClusterID string  `json:"clusterID,omitempty"`
	Neutron   Neutron `json:"neutron"` // read at start only
	Pods      Pods    `json:"pods"`

	// Nodes says how the ports of some nodes are plugged; the first entry that
	// selects a node counts. Of a node that none selects Pods.VIFType does.
	Nodes    []NodePorts `json:"nodes,omitempty"`
	Pools    Pools       `json:"pools"`
	Services Services    `json:"services"`
	Orphans  Orphans     `json:"orphans"`
	Node     Node        `json:"node"` // read at start only
}

// Neutron says how the controller reaches the cloud. The credential is not
// here: it comes from clouds.yaml or OS_*, as for every OpenStack client.
type Neutron struct {
	Cloud          string          `json:"cloud,omitempty"`                 // entry of clouds.yaml; empty: OS_CLOUD, or OS_AUTH_URL and its kin
	RequestTimeout metav1.Duration `json:"requestTimeout,omitempty"`        // of one HTTP request; 60s
	RequestsPerSec float64         `json:"requestsPerSecond,omitempty"`     // at most; 20
	MaxConcurrent  int             `json:"maxConcurrentRequests,omitempty"` // at most; 8
	// LoadBalancerAPI serves load balancers: octavia, or lbaasv2, Neutron itself.
	LoadBalancerAPI string `json:"loadBalancerAPI,omitempty"`
}

// Pods says what port a pod gets.
type Pods struct {
	ProjectID        string   `json:"projectID,omitempty"` // empty: the credential's own
	NetworkID        string   `json:"networkID,omitempty"` // empty: that of the subnets
	SubnetIDs        []string `json:"subnetIDs"`           // one address of each; required. Of an entry that is a list the first
	SecurityGroupIDs []string `json:"securityGroupIDs,omitempty"`
	VIFType          string   `json:"vifType,omitempty"` // empty: as Neutron says of each port
	PortDebug        bool     `json:"portDebug,omitempty"`

	// MoreSubnetIDs are the others of an entry of SubnetIDs that is a list, by its first: the
	// address is of the first of them that has one left.
	MoreSubnetIDs map[string][]string `json:"-"` // in the file: see SubnetIDs

	// SecurityGroups says which pods have other groups than SecurityGroupIDs;
	// the first rule that selects a pod counts.
	SecurityGroups []GroupRule `json:"securityGroups,omitempty"`
}

// AllSubnetIDs returns the subnets that pods may have addresses of.
func (p *Pods) AllSubnetIDs() []string {
	var all []string
	for _, id := range p.SubnetIDs {
		all = append(append(all, id), p.MoreSubnetIDs[id]...)
	}
	return all
}

// GroupRule gives pods security groups of their own. A selector that is nil
// selects all; one of the two is there.
type GroupRule struct {
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	SecurityGroupIDs  []string              `json:"securityGroupIDs"` // never nil; empty: none
}

// Types of ports that make a node a virtual machine: its pods' ports hang on
// the machine's own.
const (
	VIFTypeVLAN    = "vlan"
	VIFTypeMACVLAN = "macvlan"
)

// Nested reports whether ports of a type hang on the port of a virtual machine.
func Nested(vifType string) bool { return vifType == VIFTypeVLAN || vifType == VIFTypeMACVLAN }

// NodePorts says how the ports of the nodes that it selects are plugged.
type NodePorts struct {
	NodeSelector    *metav1.LabelSelector `json:"nodeSelector"`              // never nil
	VIFType         string                `json:"vifType,omitempty"`         // empty: as Neutron says of each port
	ParentSubnetIDs []string              `json:"parentSubnetIDs,omitempty"` // of the machines' own ports; empty: any
	ParentProjectID string                `json:"parentProjectID,omitempty"` // of the machines' own ports; empty: the credential's own
}

// Pools says what levels pools are kept at.
type Pools struct {
	Min      int32           `json:"min"`      // free ports at least; 5
	Max      int32           `json:"max"`      // free ports at most; 0 is no limit
	Batch    int32           `json:"batch"`    // ports in one request at most; 10
	TTL      metav1.Duration `json:"ttl"`      // of a free port above min; 10m; 0s deletes it at once
	Cooldown metav1.Duration `json:"cooldown"` // of a port given back; 10s
	WarmUp   WarmUp          `json:"warmUp"`

	MaxCreates          int `json:"maxCreates"`          // requests for ports under way at most; 8
	MaxCreatesPerSubnet int `json:"maxCreatesPerSubnet"` // of these on one subnet; 4

	// Overrides are other levels for some nodes and namespaces. Of each level
	// the first override counts that matches and says it.
	Overrides []PoolOverride `json:"overrides,omitempty"`
}

// WarmUp says which pools are filled before the first pod comes.
type WarmUp struct {
	Nodes      bool `json:"nodes"`      // of each node that can take pods
	Namespaces bool `json:"namespaces"` // of each namespace with pools of its own, on each such node
}

// PoolOverride is levels for the nodes and namespaces that it selects. A
// selector that is nil selects all; one of the two is there. The pods of a
// namespace that NamespaceSelector selects have pools of their own. What is nil
// is left to other overrides and to Pools.
type PoolOverride struct {
	NodeSelector      *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	Min               *int32                `json:"min,omitempty"`
	Max               *int32                `json:"max,omitempty"`
	Batch             *int32                `json:"batch,omitempty"`
	TTL               *metav1.Duration      `json:"ttl,omitempty"`
	Cooldown          *metav1.Duration      `json:"cooldown,omitempty"`
}

// Services says what load balancers Services get. Without SubnetIDs they get
// none, and Kuryr leaves them alone.
type Services struct {
	ProjectID string   `json:"projectID,omitempty"` // empty: the credential's own
	SubnetIDs []string `json:"subnetIDs,omitempty"` // that hold the cluster IPs
	// NodeSubnetIDs are where endpoints are that are no pods' ports: those on
	// nodes' own network, and those written by hand.
	NodeSubnetIDs []string `json:"nodeSubnetIDs,omitempty"`

	Provider string `json:"provider,omitempty"` // Octavia's; empty: the cloud's default
	FlavorID string `json:"flavorID,omitempty"` // Octavia's; empty: the provider's default

	ExternalNetworkID string `json:"externalNetworkID,omitempty"` // of floating IPs; empty: a Service has to say one of Allowed
	ExternalSubnetID  string `json:"externalSubnetID,omitempty"`  // of floating IPs; empty: any

	Allowed Allowed `json:"allowed,omitzero"` // what annotations of Services may name besides

	// SourceRangesBySecurityGroups has security groups on the endpoints' ports keep source
	// ranges where the provider does not, and open those of public Services without. It is the word of who writes it that the groups
	// under Pods let nobody in from outside: groups only add to what is let in.
	SourceRangesBySecurityGroups bool `json:"sourceRangesBySecurityGroups,omitempty"`

	// Milliseconds that a client, or an endpoint, may be silent; 0: Octavia's default.
	TimeoutClientData int `json:"timeoutClientData,omitempty"`
	TimeoutMemberData int `json:"timeoutMemberData,omitempty"`

	CheckInterval metav1.Duration `json:"checkInterval"` // between two looks at each load balancer; 10m
}

// Allowed is what annotations of Services may name, besides what Services and Pods name
// themselves: Kuryr's credential sees more of the cloud than who writes Services may use.
type Allowed struct {
	MemberSubnetIDs    []string `json:"memberSubnetIDs,omitempty"`    // of endpoints
	ExternalNetworkIDs []string `json:"externalNetworkIDs,omitempty"` // of floating IPs
	ExternalSubnetIDs  []string `json:"externalSubnetIDs,omitempty"`  // of floating IPs
	Providers          []string `json:"providers,omitempty"`          // Octavia's
	FlavorIDs          []string `json:"flavorIDs,omitempty"`          // Octavia's
}

// Orphans says how ports and load balancers that belong to nobody are collected.
type Orphans struct {
	Interval metav1.Duration `json:"interval"` // between two looks at the cloud's inventory; 0s: only when there is reason to
	Grace    metav1.Duration `json:"grace"`    // a port has to be nobody's twice, this far apart; 1m
}

// Node is the daemon's part.
type Node struct {
	OVSDB  string `json:"ovsdb,omitempty"`  // unix:/run/openvswitch/db.sock; empty: there is no Open vSwitch
	Bridge string `json:"bridge,omitempty"` // integration bridge, br-int; for vifType bridge, the Linux bridge
	// ParentInterface is what vlan and macvlan ports go on top of; empty: the
	// interface of the default route.
	ParentInterface string          `json:"parentInterface,omitempty"`
	DriverDir       string          `json:"driverDir,omitempty"`  // /usr/libexec/kuryr
	StateDir        string          `json:"stateDir,omitempty"`   // journal: /var/lib/kuryr
	MTU             int             `json:"mtu,omitempty"`        // 0: no bound but the port's own
	AddTimeout      metav1.Duration `json:"addTimeout,omitempty"` // of one ADD, 60s; kubelet gives up after 4m
	Park            bool            `json:"park"`                 // keep free ports plugged, for pods to come; true
}

// New returns the configuration that an otherwise empty file stands for. It
// does not pass the checks of Load as it is: pods.subnetIDs has no default.
func New() *Config {
	return &Config{
		APIVersion: APIVersion,
		Kind:       Kind,
		Neutron: Neutron{
			RequestTimeout: duration(time.Minute),
			RequestsPerSec: 20,
			MaxConcurrent:  8,

			LoadBalancerAPI: "octavia",
		},
		Pools: Pools{
			Min: 5, Batch: 10, TTL: duration(10 * time.Minute), Cooldown: duration(10 * time.Second),
			MaxCreates: 8, MaxCreatesPerSubnet: 4,
		},
		Services: Services{CheckInterval: duration(10 * time.Minute)},
		Orphans:  Orphans{Grace: duration(time.Minute)},
		Node: Node{
			OVSDB:      "unix:/run/openvswitch/db.sock",
			Bridge:     "br-int",
			DriverDir:  "/usr/libexec/kuryr",
			StateDir:   "/var/lib/kuryr",
			AddTimeout: duration(time.Minute),
			Park:       true,
		},
	}
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
