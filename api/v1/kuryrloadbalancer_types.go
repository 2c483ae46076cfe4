// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LoadBalancerFinalizer keeps a KuryrLoadBalancer until its load balancers
	// and floating IP are gone from the cloud.
	LoadBalancerFinalizer = "kuryr.openstack.org/kuryrloadbalancer-finalizers"
	// ServiceFinalizer keeps a Service until its KuryrLoadBalancer is gone.
	ServiceFinalizer = "kuryr.openstack.org/service-finalizer"
	// CleanupFinalizer is Kubernetes' own: a Service of type LoadBalancer has it as long as
	// there is something to clean up. Who makes the Service public puts it there.
	CleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"
)

// KuryrLoadBalancer is what a Service is in the cloud: a load balancer for each
// of its cluster IPs, with a listener and a pool for each port, and a member for
// each endpoint. It is named after its Service. Emptying its status, or any list
// in it, makes Kuryr look for what the cloud has, and make what is missing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=klb
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="VIP",type=string,JSONPath=`.spec.vips[0].ip`
// +kubebuilder:printcolumn:name="Public-IP",type=string,JSONPath=`.status.publicIP.ip`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.status.loadBalancers[0].provider`
// +kubebuilder:printcolumn:name="Provisioning",type=string,JSONPath=`.status.loadBalancers[0].provisioningStatus`
// +kubebuilder:printcolumn:name="Operating",type=string,JSONPath=`.status.loadBalancers[0].operatingStatus`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KuryrLoadBalancer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the Service and its endpoints ask for.
	Spec KuryrLoadBalancerSpec `json:"spec"`
	// What the cloud has of it.
	// +optional
	Status KuryrLoadBalancerStatus `json:"status,omitzero"`
}

// KuryrLoadBalancerList is a list of KuryrLoadBalancers.
//
// +kubebuilder:object:root=true
type KuryrLoadBalancerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KuryrLoadBalancer `json:"items"`
}

// KuryrLoadBalancerSpec is planned from the Service, its EndpointSlices and the
// configuration; Kuryr writes it, and writes it anew when somebody else does.
type KuryrLoadBalancerSpec struct {
	// Project of the load balancers; empty is that of Kuryr's own credential.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ProjectID string `json:"projectID,omitempty"`
	// Octavia provider, as in ovn or amphora; empty is the cloud's default.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Provider string `json:"provider,omitempty"`
	// Octavia flavor; empty is the provider's default.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	FlavorID string `json:"flavorID,omitempty"`
	// Octavia availability zone; empty is the cloud's default.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	AvailabilityZone string `json:"availabilityZone,omitempty"`
	// The Service's cluster IPs, IPv4 first: a load balancer each.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || !isIP(self[0].ip) || !isIP(self[1].ip) || ip(self[0].ip).family() == 4 && ip(self[1].ip).family() == 6",message="two VIPs are one of IPv4 and, after it, one of IPv6"
	VIPs []VIPAddress `json:"vips"`
	// The Service's ports, sorted by protocol and port: a listener with a pool each,
	// on each load balancer.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Listeners []ListenerSpec `json:"listeners,omitempty"`
	// Where clients may be, as CIDRs, sorted; empty is anywhere.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(r, isCIDR(r) && cidr(r).masked() == cidr(r))",message="write each range as a prefix without host bits, as in 192.0.2.0/24 or 2001:db8::/32"
	SourceRanges []string `json:"sourceRanges,omitempty"`
	// Whether a security group on the ports of the members keeps the source ranges
	// where the provider does not: other groups of theirs let in nobody from outside.
	// Without ranges the group lets everybody in.
	// +optional
	SourceRangesAtMembers bool `json:"sourceRangesAtMembers,omitempty"`
	// Whether endpoints are to see the address of the client (externalTrafficPolicy:
	// Local): providers that hide it are said not to support it.
	// +optional
	KeepClientAddress bool `json:"keepClientAddress,omitempty"`
	// The floating IP of the first VIP, which is an IPv4 address; absent: it has none.
	// +optional
	PublicIP *PublicIPSpec `json:"publicIP,omitempty"`
}

// VIPAddress is an address that a load balancer answers at.
type VIPAddress struct {
	// A cluster IP of the Service, in its shortest form.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="write an IP address, as in 10.96.0.10 or fd00::a, without a prefix length"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip.isCanonical(self)",message="write the IP address in its shortest form and in lower case, as in fd00::a"
	IP string `json:"ip"`
	// Subnet that holds it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	SubnetID string `json:"subnetID"`
}

// ListenerSpec is a port of the Service.
type ListenerSpec struct {
	// Name of the port in the Service; may be empty if it is the only one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// TCP, UDP or SCTP.
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol string `json:"protocol"`
	// Where clients connect to.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// The endpoints behind it, of all address families, sorted by address and port:
	// a load balancer has those of its VIP's family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5000
	Members []MemberSpec `json:"members,omitempty"`
	// How connections are given to members, in Octavia's words; empty is as the
	// provider does best.
	// +optional
	// +kubebuilder:validation:Enum=ROUND_ROBIN;LEAST_CONNECTIONS;SOURCE_IP;SOURCE_IP_PORT
	Algorithm string `json:"algorithm,omitempty"`
	// How long a client keeps its endpoint, in seconds; absent: each connection is
	// balanced by itself.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	AffinitySeconds *int32 `json:"affinitySeconds,omitempty"`
	// Most connections at once; absent: any number.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	ConnectionLimit *int32 `json:"connectionLimit,omitempty"`
	// Milliseconds that a client may be silent; absent: Octavia's default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000000
	TimeoutClientData *int64 `json:"timeoutClientData,omitempty"`
	// Milliseconds that an endpoint may be silent; absent: Octavia's default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000000
	TimeoutMemberData *int64 `json:"timeoutMemberData,omitempty"`
	// Milliseconds to connect to an endpoint; absent: Octavia's default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000000
	TimeoutMemberConnect *int64 `json:"timeoutMemberConnect,omitempty"`
	// Milliseconds to wait for more of a TCP stream to inspect; absent: Octavia's default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000000
	TimeoutTCPInspect *int64 `json:"timeoutTCPInspect,omitempty"`
	// The PROXY protocol by which endpoints are told the client's address; empty:
	// they are not.
	// +optional
	// +kubebuilder:validation:Enum=PROXY;PROXYV2
	ProxyProtocol string `json:"proxyProtocol,omitempty"`
	// How members are checked; absent: they are not.
	// +optional
	Monitor *MonitorSpec `json:"monitor,omitempty"`
}

// MemberSpec is an endpoint behind a listener.
type MemberSpec struct {
	// What it is, as <namespace>/<pod>, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=320
	Name string `json:"name,omitempty"`
	// Its address, in its shortest form.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:Pattern=`^[0-9a-f.:]+$`
	IP string `json:"ip"`
	// Where it listens.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Subnet by which it is reached; empty is that of the VIP.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SubnetID string `json:"subnetID,omitempty"`
}

// MonitorSpec says how the members of a pool are checked.
//
// +kubebuilder:validation:XValidation:rule="self.timeout < self.delay",message="a check has to end before the next begins: lower timeout, or raise delay"
type MonitorSpec struct {
	// How a member is asked.
	// +kubebuilder:validation:Enum=TCP;UDP-CONNECT;SCTP;HTTP
	Type string `json:"type"`
	// Seconds between two checks.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	Delay int32 `json:"delay"`
	// Seconds that a check may take; below delay.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	Timeout int32 `json:"timeout"`
	// Checks passed in a row until a member is taken for healthy.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	MaxRetries int32 `json:"maxRetries"`
	// Checks failed in a row until it is taken for broken.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	MaxRetriesDown int32 `json:"maxRetriesDown"`
}

// PublicIPSpec says what floating IP a Service of type LoadBalancer gets.
type PublicIPSpec struct {
	// External network that it is of.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	NetworkID string `json:"networkID"`
	// Subnet of that network; empty is any.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SubnetID string `json:"subnetID,omitempty"`
	// The address it has to be: an existing floating IP that nobody uses, or a new
	// one with that address; empty is any.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) && ip(self).family() == 4",message="write an IPv4 address, as in 203.0.113.7, or leave it out for any: floating IPs are IPv4"
	Address string `json:"address,omitempty"`
	// Whether a floating IP that Kuryr made outlives the Service.
	// +optional
	Keep bool `json:"keep,omitempty"`
}

// KuryrLoadBalancerStatus is what the cloud has. The load balancer reconciler
// writes it.
type KuryrLoadBalancerStatus struct {
	// One for each VIP.
	// +optional
	// +listType=atomic
	LoadBalancers []LoadBalancerStatus `json:"loadBalancers,omitempty"`
	// All listeners of the load balancers.
	// +optional
	// +listType=atomic
	Listeners []ListenerStatus `json:"listeners,omitempty"`
	// All pools of the load balancers.
	// +optional
	// +listType=atomic
	Pools []PoolStatus `json:"pools,omitempty"`
	// All members of the pools.
	// +optional
	// +listType=atomic
	Members []MemberStatus `json:"members,omitempty"`
	// The floating IP of the first VIP.
	// +optional
	PublicIP *PublicIPStatus `json:"publicIP,omitempty"`
	// Security group that keeps the source ranges: members' ports get it besides their
	// own; empty: there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SecurityGroupID string `json:"securityGroupID,omitempty"`
	// Ready: the cloud has what the spec says. Progressing: Kuryr is at it.
	// Supported: the provider can do all of it. InSync: the last look at the cloud
	// showed what this status says.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// LoadBalancerStatus is a load balancer in the cloud.
type LoadBalancerStatus struct {
	// Its ID in the cloud.
	ID string `json:"id"`
	// <namespace>/<service>; of a second one with /<IP> after it.
	Name string `json:"name"`
	// Its VIP.
	IP string `json:"ip"`
	// Subnet of the VIP.
	SubnetID string `json:"subnetID"`
	// Port of the VIP.
	// +optional
	PortID string `json:"portID,omitempty"`
	// Project that it belongs to.
	// +optional
	ProjectID string `json:"projectID,omitempty"`
	// Octavia provider that serves it.
	Provider string `json:"provider"`
	// Octavia's word: ACTIVE, PENDING_UPDATE, ERROR …
	ProvisioningStatus string `json:"provisioningStatus"`
	// Octavia's word: ONLINE, OFFLINE, DEGRADED …
	OperatingStatus string `json:"operatingStatus"`
}

// ListenerStatus is a listener in the cloud.
type ListenerStatus struct {
	// Its ID in the cloud.
	ID string `json:"id"`
	// Load balancer that it is of.
	LoadBalancerID string `json:"loadBalancerID"`
	// <namespace>/<service>:<protocol>:<port>.
	Name string `json:"name"`
	// TCP, UDP or SCTP.
	Protocol string `json:"protocol"`
	// Where clients connect to.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Milliseconds that a client may be silent, as the cloud has them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000000
	TimeoutClientData *int64 `json:"timeoutClientData,omitempty"`
	// Milliseconds that an endpoint may be silent, as the cloud has them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000000
	TimeoutMemberData *int64 `json:"timeoutMemberData,omitempty"`
}

// PoolStatus is a pool in the cloud.
type PoolStatus struct {
	// Its ID in the cloud.
	ID string `json:"id"`
	// Listener that it is behind.
	ListenerID string `json:"listenerID"`
	// Load balancer that it is of.
	LoadBalancerID string `json:"loadBalancerID"`
	// <namespace>/<service>:<protocol>:<port>.
	Name string `json:"name"`
	// TCP, UDP, SCTP, PROXY or PROXYV2.
	Protocol string `json:"protocol"`
}

// MemberStatus is a member in the cloud.
type MemberStatus struct {
	// Its ID in the cloud.
	ID string `json:"id"`
	// Pool that it is in.
	PoolID string `json:"poolID"`
	// <namespace>/<pod>:<port>.
	// +optional
	Name string `json:"name,omitempty"`
	// Its address.
	IP string `json:"ip"`
	// Where it listens.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Subnet by which it is reached; empty is that of the VIP.
	// +optional
	SubnetID string `json:"subnetID,omitempty"`
}

// PublicIPStatus is a floating IP in the cloud.
type PublicIPStatus struct {
	// Its ID in the cloud.
	ID string `json:"id"`
	// The address.
	IP string `json:"ip"`
	// Whether Kuryr made it, and so deletes it: false for one that was there.
	Made bool `json:"made"`
}
