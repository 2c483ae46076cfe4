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
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
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
	Nodes []NodePorts `json:"nodes,omitempty"`
	Pools Pools       `json:"pools"`
	// Networks says which namespaces have networks of their own.
	Networks Networks `json:"networks"`
	// Projects are those that namespaces may be in besides that of Pods and Services. Of entries
	// with a selector the first that selects a namespace counts, unless the namespace names one.
	Projects []Project `json:"projects,omitempty"`
	Services Services  `json:"services"`
	Orphans  Orphans   `json:"orphans"`
	// Controllers says how the controllers share the work.
	Controllers Controllers `json:"controllers"`
	// Preflight says what the controller's preflight checks may hold back.
	Preflight Preflight `json:"preflight"`
	Node      Node      `json:"node"` // read at start only
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

// Pods describes the ports of pods.
type Pods struct {
	ProjectID        string   `json:"projectID,omitempty"` // empty: the credential's own
	SubnetIDs        []string `json:"-"`                   // of one network; one address of each; required. Of an entry that is a list the first
	SecurityGroupIDs []string `json:"securityGroupIDs,omitempty"`
	VIFType          string   `json:"vifType,omitempty"` // empty: as Neutron says of each port
	PortDebug        bool     `json:"portDebug,omitempty"`

	// MoreSubnetIDs are the others of an entry of SubnetIDs that is a list, by its first: the
	// address is of the first of them that has one left.
	MoreSubnetIDs map[string][]string `json:"-"`
	// InFile is SubnetIDs and MoreSubnetIDs as the file has them. Load empties it.
	InFile []json.RawMessage `json:"subnetIDs"`

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

	// SubnetIDs replace those of Pods for the nodes, as where each rack has a routed segment of its
	// own; empty: they do not.
	SubnetIDs []string `json:"subnetIDs,omitempty"`
}

// Pools holds the levels of pools.
type Pools struct {
	Min      int32           `json:"min"`      // free ports at least; 5
	Max      int32           `json:"max"`      // free ports at most; 0 is no limit
	Batch    int32           `json:"batch"`    // ports in one request at most; 10
	TTL      metav1.Duration `json:"ttl"`      // of a free port above min; 10m; 0s deletes it at once
	Cooldown metav1.Duration `json:"cooldown"` // of a port given back; 10s
	WarmUp   bool            `json:"warmUp"`   // fill the pools of nodes that can take pods before the first pod comes

	MaxCreates          int `json:"maxCreates"`          // requests for ports under way at most; 8
	MaxCreatesPerSubnet int `json:"maxCreatesPerSubnet"` // of these on one subnet; 4

	// Overrides are other levels for some nodes and namespaces. Of each level
	// the first override counts that matches and says it.
	Overrides []PoolOverride `json:"overrides,omitempty"`
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

// Networks says where the networks of namespaces come from. The modes are those of
// v1.NetworkMode.
type Networks struct {
	NetworkChoice
	// AllowedModes are those that a namespace may choose by its annotation, besides the one that it
	// has by Mode and Namespaces.
	AllowedModes []string `json:"allowedModes,omitempty"`
	// Given are existing networks that a namespace may choose by its annotation.
	Given []GivenNetwork `json:"given,omitempty"`
	// Namespaces says what is other for some namespaces; of each field the first entry counts that
	// selects the namespace and says it.
	Namespaces []NamespaceNetwork `json:"namespaces,omitempty"`
	// MinFree is the min of the pools of networks that Kuryr makes, which have a pool on each node
	// where their namespace has pods. Overrides of Pools win.
	MinFree int32 `json:"minFree"`
}

// NetworkChoice is how the network of a namespace is made. In Networks a field that is empty has
// its default, in an entry for namespaces it is left to the next entry.
type NetworkChoice struct {
	Mode string `json:"mode,omitempty"` // shared (the default), namespace, flat
	// SubnetPoolIDs are the subnet pools of mode namespace, one for each address family.
	SubnetPoolIDs []string `json:"subnetPoolIDs,omitempty"`
	// Ranges are the prefixes that those of mode flat are chosen from, of either family.
	Ranges []string `json:"ranges,omitempty"`
	// PrefixLength is that of each IPv4 subnet; 0: 16 in mode flat, the pool's default in mode
	// namespace. PrefixLengthIPv6 likewise, 64 in mode flat.
	PrefixLength     int      `json:"prefixLength,omitempty"`
	PrefixLengthIPv6 int      `json:"prefixLengthIPv6,omitempty"`
	RouterID         string   `json:"routerID,omitempty"`   // empty: no router, or Router
	Router           *Router  `json:"router,omitempty"`     // in place of RouterID
	DNSServers       []string `json:"dnsServers,omitempty"` // of either family
	Routes           []Route  `json:"routes,omitempty"`     // of either family
}

// The file has the same words for these as the KuryrNetwork.
type (
	// Router is a router that Kuryr makes for each namespace.
	Router = v1.NetworkRouter
	// Route is a route that pods get, or a router has.
	Route = v1.Route
)

// NamespaceNetwork is how the networks of some namespaces are made. One of Mode and the other
// fields is there.
type NamespaceNetwork struct {
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"` // never nil
	NetworkChoice
}

// GivenNetwork is an existing network.
type GivenNetwork struct {
	Name      string   `json:"name"` // that namespaces know it by
	NetworkID string   `json:"networkID,omitempty"`
	SubnetIDs []string `json:"subnetIDs"` // one address of each; required
	// NamespaceSelector selects the namespaces that may choose it; nil: all.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// Project is a project of the cloud that namespaces may be in.
type Project struct {
	ProjectID string `json:"projectID"`
	// Cloud is the entry of clouds.yaml with a credential of the project; empty: Neutron's credential
	// makes what is in the project, which takes the role admin.
	Cloud string `json:"cloud,omitempty"`
	// NamespaceSelector selects the namespaces that are in it without an annotation; nil: none. They
	// cannot leave it by an annotation.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// AllowedNamespaces selects the further namespaces that may name it by an annotation; nil: all.
	AllowedNamespaces *metav1.LabelSelector `json:"allowedNamespaces,omitempty"`
	// SecurityGroupIDs replace those of Pods; nil: they do not.
	SecurityGroupIDs []string `json:"securityGroupIDs,omitempty"`
	// RouterID or Router, and SubnetPoolIDs replace those of Networks.
	RouterID      string   `json:"routerID,omitempty"`
	Router        *Router  `json:"router,omitempty"`
	SubnetPoolIDs []string `json:"subnetPoolIDs,omitempty"`
	// ExternalNetworkID replaces that of Services.
	ExternalNetworkID string `json:"externalNetworkID,omitempty"`
}

// Services describes the load balancers of Services. Without SubnetIDs there are none, and Kuryr
// leaves Services alone.
type Services struct {
	ProjectID string   `json:"projectID,omitempty"` // empty: the credential's own
	SubnetIDs []string `json:"subnetIDs,omitempty"` // that hold the cluster IPs
	// NodeSubnetIDs are the subnets of endpoints that are not ports of pods: endpoints on the
	// nodes' own network, and those written by hand.
	NodeSubnetIDs []string `json:"nodeSubnetIDs,omitempty"`

	Provider string `json:"provider,omitempty"` // Octavia's; empty: the cloud's default
	FlavorID string `json:"flavorID,omitempty"` // Octavia's; empty: the provider's default

	ExternalNetworkID string `json:"externalNetworkID,omitempty"` // of floating IPs; empty: a Service has to say one of Allowed
	ExternalSubnetID  string `json:"externalSubnetID,omitempty"`  // of floating IPs; empty: any

	Allowed Allowed `json:"allowed,omitzero"` // further values that annotations of Services may name

	// SourceRangesBySecurityGroups enforces source ranges by security groups on the endpoints'
	// ports if the provider does not, and opens the ports of public Services without ranges. By
	// setting it the administrator promises that the groups under Pods let in no outside clients:
	// groups only allow.
	SourceRangesBySecurityGroups bool `json:"sourceRangesBySecurityGroups,omitempty"`

	CheckInterval metav1.Duration `json:"checkInterval"` // between two looks at each load balancer; 10m
	// ReleaseAfter is how long a deleted Service waits for Octavia to delete its load
	// balancer; 5m. 0s: for ever.
	ReleaseAfter metav1.Duration `json:"releaseAfter"`
}

// Allowed lists what annotations of Services may name in addition to the values of Services and
// Pods: Kuryr's credential sees more of the cloud than the authors of Services may use.
type Allowed struct {
	MemberSubnetIDs    []string `json:"memberSubnetIDs,omitempty"`    // of endpoints
	ExternalNetworkIDs []string `json:"externalNetworkIDs,omitempty"` // of floating IPs
	ExternalSubnetIDs  []string `json:"externalSubnetIDs,omitempty"`  // of floating IPs
	Providers          []string `json:"providers,omitempty"`          // Octavia's
	FlavorIDs          []string `json:"flavorIDs,omitempty"`          // Octavia's
}

// Preflight describes what waits for the preflight checks.
type Preflight struct {
	// FirstStartWaits has the controller make nothing in the cloud while there is no KuryrPort, no
	// KuryrNetwork and no KuryrLoadBalancer yet, and the checks do not find what all pods or all
	// Services need; true.
	FirstStartWaits bool `json:"firstStartWaits"`
}

// Controllers describes how the replicas of the controller share the work.
type Controllers struct {
	Active int `json:"active"` // how many work, the oldest ones; the others stand by; 0: all; 1
}

// Orphans describes the collection of ports and load balancers without an owner.
type Orphans struct {
	Interval metav1.Duration `json:"interval"` // between two looks at the cloud's inventory; 0s: only when there is reason to
	Grace    metav1.Duration `json:"grace"`    // a port has to be nobody's twice, this far apart; 1m
}

// Node is the daemon's part.
type Node struct {
	OVSDB  string `json:"ovsdb,omitempty"`  // unix:/run/openvswitch/db.sock; empty: there is no Open vSwitch
	Bridge string `json:"bridge,omitempty"` // integration bridge, br-int; for vifType bridge, the Linux bridge
	// ParentInterface is the interface below vlan and macvlan ports; empty: the interface of the
	// default route.
	ParentInterface string          `json:"parentInterface,omitempty"`
	DriverDir       string          `json:"driverDir,omitempty"`  // /usr/libexec/kuryr
	StateDir        string          `json:"stateDir,omitempty"`   // journal: /var/lib/kuryr
	MTU             int             `json:"mtu,omitempty"`        // 0: no bound but the port's own
	AddTimeout      metav1.Duration `json:"addTimeout,omitempty"` // of one ADD, 60s; kubelet gives up after 4m
	Park            bool            `json:"park"`                 // keep free ports plugged, for pods to come; true
}

// New returns the configuration of an empty file. It does not pass the checks of Load:
// pods.subnetIDs has no default.
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
		Networks:  Networks{NetworkChoice: NetworkChoice{Mode: "shared"}, MinFree: 1},
		Services:  Services{CheckInterval: duration(10 * time.Minute), ReleaseAfter: duration(5 * time.Minute)},
		Orphans:   Orphans{Grace: duration(time.Minute)},
		Preflight: Preflight{FirstStartWaits: true},

		Controllers: Controllers{Active: 1},
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
