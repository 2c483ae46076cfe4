// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LoadBalancerFinalizer keeps a KuryrLoadBalancer until its load balancers and floating IP are
	// deleted in the cloud.
	LoadBalancerFinalizer = "kuryr.openstack.org/kuryrloadbalancer-finalizers"
	// ServiceFinalizer keeps a Service until its KuryrLoadBalancer is deleted.
	ServiceFinalizer = "kuryr.openstack.org/service-finalizer"
	// CleanupFinalizer is Kubernetes' own. A Service of type LoadBalancer has it as long as cloud
	// resources have to be cleaned up. The controller that makes the Service public sets it.
	CleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"
)

// KuryrLoadBalancer holds the cloud resources of one Service: a load balancer for each of its
// cluster IPs, with a listener and a pool for each port, and a member for each endpoint. It has the
// name of its Service. If its status, or a list in it, is cleared, Kuryr finds the cloud resources
// again and makes missing ones.
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

	// Plan, computed from the Service and its endpoints.
	Spec KuryrLoadBalancerSpec `json:"spec"`
	// State of the cloud resources.
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

// KuryrLoadBalancerSpec is planned from the Service, its EndpointSlices and the configuration. Only
// Kuryr writes it, and Kuryr reverts other edits.
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
	// Whether a security group on the members' ports enforces the source ranges if the provider
	// does not. The members' other groups must let in no outside clients. Without source ranges the
	// group lets all clients in.
	// +optional
	SourceRangesAtMembers bool `json:"sourceRangesAtMembers,omitempty"`
	// Whether endpoints must see the client's address (externalTrafficPolicy: Local). A provider
	// that hides it is reported as not supporting it.
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
	// Endpoints of all address families, sorted by address and port. A load balancer gets those of
	// its VIP's family.
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
	// PROXY protocol that sends the client's address to endpoints. Empty: none.
	// +optional
	// +kubebuilder:validation:Enum=PROXY;PROXYV2
	ProxyProtocol string `json:"proxyProtocol,omitempty"`
	// How members are checked; absent: they are not.
	// +optional
	Monitor *MonitorSpec `json:"monitor,omitempty"`
}

// MemberSpec is an endpoint behind a listener.
type MemberSpec struct {
	// Name of the endpoint for people, as <namespace>/<pod>.
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

// MonitorSpec describes the health check of a pool's members.
//
// +kubebuilder:validation:XValidation:rule="self.timeout < self.delay",message="a check has to end before the next begins: lower timeout, or raise delay"
type MonitorSpec struct {
	// Type of the check.
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

// PublicIPSpec describes the floating IP of a Service of type LoadBalancer.
type PublicIPSpec struct {
	// External network that it is of.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	NetworkID string `json:"networkID"`
	// Subnet of that network; empty is any.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SubnetID string `json:"subnetID,omitempty"`
	// Requested address: an existing unused floating IP, or a new one with that address. Empty: any
	// address.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) && ip(self).family() == 4",message="write an IPv4 address, as in 203.0.113.7, or leave it out for any: floating IPs are IPv4"
	Address string `json:"address,omitempty"`
	// Whether a floating IP that Kuryr made outlives the Service.
	// +optional
	Keep bool `json:"keep,omitempty"`
}

// SecurityGroupState says whether a load balancer needs a security group of its own.
type SecurityGroupState string

// States of the security group of a load balancer.
const (
	SecurityGroupNone   SecurityGroupState = "None"
	SecurityGroupWanted SecurityGroupState = "Wanted"
	SecurityGroupReady  SecurityGroupState = "Ready"
)

// KuryrLoadBalancerStatus is the state in the cloud. The load balancer reconciler writes it.
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
	// Address of a floating IP that Kuryr did not make, and has taken off while the source ranges are not
	// enforced. No other load balancer gets it meanwhile.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WithheldPublicIP string `json:"withheldPublicIP,omitempty"`
	// ID of the security group that enforces the source ranges. Members' ports have it in addition
	// to their own groups. Empty: there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SecurityGroupID string `json:"securityGroupID,omitempty"`
	// Whether there is to be such a group where spec.sourceRangesAtMembers is set. None:
	// the load balancers keep the source ranges. Wanted: there is to be one, and is none yet.
	// Ready: securityGroupID names it. Empty: it is not known, and members' ports keep the
	// groups that they have.
	// +optional
	// +kubebuilder:validation:Enum=None;Wanted;Ready
	SecurityGroupState SecurityGroupState `json:"securityGroupState,omitempty"`
	// The change of a load balancer that takes long; absent while no change does.
	// +optional
	WaitingFor *WaitingStatus `json:"waitingFor,omitempty"`
	// Members whose port has been without that security group for more than a minute.
	// +optional
	// +listType=atomic
	UnreachedMembers []UnreachedMember `json:"unreachedMembers,omitempty"`
	// What the provider does not do of what the Service asks for, if Supported is False.
	// +optional
	// +listType=atomic
	Unsupported []UnsupportedField `json:"unsupported,omitempty"`
	// What stays as it is, as only new load balancers and floating IPs get what the spec
	// says.
	// +optional
	// +listType=atomic
	NotChanged []UnchangedField `json:"notChanged,omitempty"`
	// Ready: the cloud has what the spec says. Progressing: Kuryr is working on it. Supported: the
	// provider can do everything. InSync: the cloud matched this status at the last check.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WaitingStatus is a load balancer that takes no change, as the cloud is at work on it.
type WaitingStatus struct {
	// Its ID in the cloud.
	LoadBalancerID string `json:"loadBalancerID"`
	// Since when Kuryr has seen it so.
	Since metav1.Time `json:"since"`
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

// UnreachedMember is a member whose port does not have the security group.
type UnreachedMember struct {
	// Its address.
	IP string `json:"ip"`
	// When the port was first seen without the group.
	Since metav1.Time `json:"since"`
}

// UnsupportedField is something that a Service asks for and does not get.
type UnsupportedField struct {
	// Where the Service asks for it, as spec.loadBalancerSourceRanges.
	Field string `json:"field"`
	// Why it does not get it, in one word.
	Reason string `json:"reason"`
}

// UnchangedField is something in the cloud that differs from the spec and stays.
type UnchangedField struct {
	// Field of the spec: projectID, flavorID, availabilityZone, publicIP.networkID or
	// publicIP.subnetID.
	Field string `json:"field"`
	// The ID of the load balancer, or the address of the floating IP.
	Of string `json:"of"`
	// What it is in the cloud.
	// +optional
	Is string `json:"is,omitempty"`
	// What the spec says.
	Wanted string `json:"wanted"`
}

// PublicIPStatus is a floating IP in the cloud.
type PublicIPStatus struct {
	// Its ID in the cloud.
	ID string `json:"id"`
	// The address.
	IP string `json:"ip"`
	// Whether Kuryr made the floating IP and so deletes it. False: it existed before.
	Made bool `json:"made"`
	// Network that it is of. Versions before this field did not write it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	NetworkID string `json:"networkID,omitempty"`
}
