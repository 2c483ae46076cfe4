// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KuryrNetwork is the network of a namespace's pods. It has the namespace's name, which is the only
// name in use. A namespace whose pods are in the cluster's common network, in the common project,
// has none.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=kns
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Project",type=string,priority=1,JSONPath=`.spec.projectID`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.status.networkID`
// +kubebuilder:printcolumn:name="Subnets",type=string,JSONPath=`.status.subnets[*].cidr`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type KuryrNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the network is to be like. The planner of networks writes it.
	Spec KuryrNetworkSpec `json:"spec"`
	// What there is in the cloud. The applier of networks writes it, except for the conditions of
	// the planner.
	// +optional
	Status KuryrNetworkStatus `json:"status,omitzero"`
}

// KuryrNetworkList is a list of KuryrNetworks.
//
// +kubebuilder:object:root=true
type KuryrNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KuryrNetwork `json:"items"`
}

// NetworkMode is where the network of a namespace's pods comes from.
//
// +kubebuilder:validation:Enum=shared;namespace;flat;given
type NetworkMode string

// The network modes.
const (
	// NetworkShared: the pods are in the subnets of pods.subnetIDs, as those of other namespaces.
	NetworkShared NetworkMode = "shared"
	// NetworkNamespace: Kuryr makes a network for the namespace; the SDN chooses the prefixes of
	// its subnets from subnet pools.
	NetworkNamespace NetworkMode = "namespace"
	// NetworkFlat: Kuryr makes a network for the namespace, and chooses the prefixes of its subnets
	// from configured ranges, by default a /16 for each namespace.
	NetworkFlat NetworkMode = "flat"
	// NetworkGiven: the pods are in an existing network that the configuration lists and the
	// namespace names. Kuryr neither changes nor deletes it.
	NetworkGiven NetworkMode = "given"
)

// KuryrNetworkSpec is what a namespace's network is to be like.
//
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",message="spec.mode is fixed: pods have ports in the network; Kuryr makes another KuryrNetwork once no pod has"
// +kubebuilder:validation:XValidation:rule="has(self.projectID) == has(oldSelf.projectID) && (!has(self.projectID) || self.projectID == oldSelf.projectID)",message="spec.projectID is fixed: the cloud cannot move a network to another project; Kuryr makes another KuryrNetwork once no pod has a port"
// +kubebuilder:validation:XValidation:rule="has(self.networkID) == has(oldSelf.networkID) && (!has(self.networkID) || self.networkID == oldSelf.networkID)",message="spec.networkID is fixed: pods have ports in the network; Kuryr makes another KuryrNetwork once no pod has"
// +kubebuilder:validation:XValidation:rule="!(has(self.routerID) && has(self.router))",message="a network has either a routerID, of a router that is there, or a router that Kuryr makes"
type KuryrNetworkSpec struct {
	// Where the network comes from; immutable.
	Mode NetworkMode `json:"mode"`
	// UID of the namespace. It is in the name of the network.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	NamespaceUID string `json:"namespaceUID"`
	// Project of the network and of all ports and load balancers of the namespace; empty is that of
	// Kuryr's own credential; immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ProjectID string `json:"projectID,omitempty"`
	// Existing network, in mode given; empty: that of the subnets; immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	NetworkID string `json:"networkID,omitempty"`
	// Existing subnets, in modes shared and given: a port gets one address of each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	SubnetIDs []string `json:"subnetIDs,omitempty"`
	// Subnets to make, in modes namespace and flat. The first one of each IP family is the first
	// for addresses; further ones of the family are for when those before are full.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Subnets []NetworkSubnet `json:"subnets,omitempty"`
	// Router that the subnets get an interface of, in modes namespace and flat; empty: none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RouterID string `json:"routerID,omitempty"`
	// Router that Kuryr makes for this namespace alone, in place of routerID.
	// +optional
	Router *NetworkRouter `json:"router,omitempty"`
	// DNS servers of the subnets, each in those of its IP family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	DNSServers []string `json:"dnsServers,omitempty"`
	// Routes that pods get besides the default route, each in the subnets of its IP family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Routes []Route `json:"routes,omitempty"`
}

// NetworkRouter is a router to make, with a gateway in an external network.
type NetworkRouter struct {
	// External network of the gateway.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ExternalNetworkID string `json:"externalNetworkID"`
	// True if the router replaces the addresses of pods by its own outside; absent: as the SDN
	// chooses.
	// +optional
	SNAT *bool `json:"snat,omitempty"`
	// Routes of the router besides that to the gateway of the external network, by way of neighbours
	// there.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Routes []Route `json:"routes,omitempty"`
}

// NetworkSubnet is a subnet to make.
//
// +kubebuilder:validation:XValidation:rule="has(self.cidr) != has(self.subnetPoolID)",message="a subnet has either a cidr or a subnetPoolID that the SDN chooses one from"
type NetworkSubnet struct {
	// 4 or 6.
	// +kubebuilder:validation:Enum=4;6
	IPVersion int32 `json:"ipVersion"`
	// Prefix that Kuryr has chosen, in mode flat.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="write the prefix as in 10.7.0.0/16 or fd00:7::/64"
	CIDR string `json:"cidr,omitempty"`
	// Subnet pool that the SDN chooses the prefix from, in mode namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SubnetPoolID string `json:"subnetPoolID,omitempty"`
	// Length of the prefix from the pool, in bits; 0: the pool's default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	PrefixLength int32 `json:"prefixLength,omitempty"`
}

// KuryrNetworkStatus is what there is of a namespace's network. Emptied, the controller finds in
// the cloud what it has made for the object, and makes the rest.
type KuryrNetworkStatus struct {
	// Network of the namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	NetworkID string `json:"networkID,omitempty"`
	// Largest packet of the network, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
	// Subnets of the network: those of spec.subnets in that order, as far as they exist.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Subnets []NetworkSubnetStatus `json:"subnets,omitempty"`
	// Router that the subnets have interfaces of, or the one that Kuryr has made for it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RouterID string `json:"routerID,omitempty"`
	// Addresses outside of the router that Kuryr has made.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	RouterAddresses []string `json:"routerAddresses,omitempty"`
	// Routes that nodes outside of the network need to reach its pods, as for probes: each subnet,
	// by way of the router's address outside. Empty if the router has none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NodeRoutes []Route `json:"nodeRoutes,omitempty"`
	// Ready: pods get ports in the network. Planned is False if the namespace or the configuration
	// asks for what Kuryr does not do, or does only once the namespace has no pods.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkSubnetStatus is a subnet of a namespace's network.
type NetworkSubnetStatus struct {
	// Subnet in the SDN.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// 4 or 6.
	// +kubebuilder:validation:Enum=4;6
	IPVersion int32 `json:"ipVersion"`
	// Prefix of the subnet.
	// +kubebuilder:validation:MaxLength=49
	CIDR string `json:"cidr"`
	// Gateway of the subnet, which is the router's address; absent if it has none.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	Gateway string `json:"gateway,omitempty"`
	// True once the router has its interface in the subnet.
	// +optional
	Routed bool `json:"routed,omitempty"`
}
