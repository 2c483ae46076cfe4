// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// KuryrPort is one port of the SDN, free or bound to a pod. It is named by the
// SDN's ID of the port (for Neutron, its UUID).
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=kp
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.pool`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.podRef.namespace`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.podRef.name`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.spec.vif.addresses[0].ip`
// +kubebuilder:printcolumn:name="MAC",type=string,JSONPath=`.spec.vif.macAddress`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Other IP",type=string,priority=1,JSONPath=`.spec.vif.addresses[1].ip`
// +kubebuilder:printcolumn:name="Pool",type=string,priority=1,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Type",type=string,priority=1,JSONPath=`.spec.vif.type`
// +kubebuilder:printcolumn:name="Active",type=boolean,priority=1,JSONPath=`.status.active`
// +kubebuilder:printcolumn:name="Container",type=string,priority=1,JSONPath=`.status.attachment.containerID`
type KuryrPort struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Plan of the port.
	Spec KuryrPortSpec `json:"spec"`
	// State of the port.
	// +optional
	Status KuryrPortStatus `json:"status,omitzero"`
}

// Grouped reports whether the SDN is known to have set the security groups of the port's spec. As
// long as the spec is unchanged since its creation, the port was made with these groups. After that
// the status must name them, and must report no error since: an error may hide that other groups
// were written. The status also has no groups if they are unknown.
func (p *KuryrPort) Grouped() bool {
	return p.Generation <= 1 || p.Told() && meta.IsStatusConditionTrue(p.Status.Conditions, ConditionReady) &&
		SameGroups(p.Spec.SecurityGroupIDs, p.Status.AppliedSecurityGroupIDs)
}

// Told reports whether the status belongs to the port's spec or to the generation before. After two
// writes of the spec the groups might have changed and changed back, and the SDN might have got the
// first change only.
func (p *KuryrPort) Told() bool {
	ready := meta.FindStatusCondition(p.Status.Conditions, ConditionReady)
	return ready != nil && p.Generation <= ready.ObservedGeneration+1
}

// SameGroups reports whether two lists have the same security groups, in any order.
func SameGroups(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// KuryrPortList is a list of KuryrPorts.
//
// +kubebuilder:object:root=true
type KuryrPortList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KuryrPort `json:"items"`
}

// KuryrPortSpec is what the pool reconciler has planned for a port. All fields except
// securityGroupIDs and podRef are immutable.
//
// +kubebuilder:validation:XValidation:rule="self.pool == oldSelf.pool",message="spec.pool is fixed: Kuryr makes, gives and takes ports by itself; delete the pod to free the port"
// +kubebuilder:validation:XValidation:rule="self.nodeName == oldSelf.nodeName",message="spec.nodeName is fixed: Kuryr makes, gives and takes ports by itself; delete the pod to free the port"
// +kubebuilder:validation:XValidation:rule="self.projectID == oldSelf.projectID",message="spec.projectID is fixed: Kuryr makes, gives and takes ports by itself; delete the pod to free the port"
// +kubebuilder:validation:XValidation:rule="self.networkID == oldSelf.networkID",message="spec.networkID is fixed: Kuryr makes, gives and takes ports by itself; delete the pod to free the port"
// +kubebuilder:validation:XValidation:rule="self.vif == oldSelf.vif",message="spec.vif is fixed, as the SDN gave it: Kuryr makes, gives and takes ports by itself; delete the pod to free the port"
// +kubebuilder:validation:XValidation:rule="!has(self.podRef) || !has(oldSelf.podRef) || self.podRef == oldSelf.podRef",message="spec.podRef is fixed while a pod has the port: Kuryr makes, gives and takes ports by itself; delete the pod to free the port"
type KuryrPortSpec struct {
	// Name of the KuryrPortPool that the port belongs to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool"`
	// Node that the port is bound to. Its daemon, and no other, plugs it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// Project that the port belongs to in the SDN; empty where it has none.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=64
	ProjectID string `json:"projectID"`
	// Network of the port in the SDN.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	NetworkID string `json:"networkID"`
	// Wanted security groups. status.appliedSecurityGroupIDs has the current ones.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	SecurityGroupIDs []string `json:"securityGroupIDs,omitempty"`
	// How the port is plugged and addressed.
	VIF VIF `json:"vif"`
	// Pod that has the port; absent while it is free.
	// +optional
	PodRef *PodReference `json:"podRef,omitempty"`
}

// VIF describes a port for the node that plugs it.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'vlan' || has(self.vlanID)",message="spec.vif.vlanID is missing: a vif of type vlan needs the VLAN ID (1 to 4094) of its subport"
type VIF struct {
	// How the port is plugged: ovs, bridge, or the name of a binding driver.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="write the type of the vif in lower case, as in ovs or bridge; other types name an executable of the binding driver folder"
	Type string `json:"type"`
	// MAC address of the pod's interface.
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9a-f]{2}:){5}[0-9a-f]{2}$')",message="write the MAC address as six lower-case hexadecimal pairs, as in fa:16:3e:00:00:01"
	MACAddress string `json:"macAddress"`
	// Largest packet of the port's network, in bytes; 0 is the node's own.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0 || (self >= 68 && self <= 65535)",message="write an MTU of 68 to 65535 bytes (IPv6 needs 1280 at least), or 0 for the node's own"
	MTU int32 `json:"mtu,omitempty"`
	// Addresses of the pod's interface. Tables show the first one, and a pod with one address has
	// the first one.
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Addresses []Address `json:"addresses"`
	// Routes in addition to those of the subnets and the default route.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Routes []Route `json:"routes,omitempty"`
	// Bridge that the node plugs the port into; empty is the node's default.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Bridge string `json:"bridge,omitempty"`
	// VLAN of a trunk's subport.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLANID int32 `json:"vlanID,omitempty"`
	// Port of the virtual machine that carries this one.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ParentPortID string `json:"parentPortID,omitempty"`
	// Further properties from the SDN, for binding drivers. Of a port of type ovs: wiredBy is
	// neutron-openvswitch-agent if that agent wires it and not OVN, and linuxBridge is true if the
	// agent filters in a Linux bridge, which Kuryr does not make.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Details map[string]string `json:"details,omitempty"`
}

// Details of a port of type ovs.
const (
	// DetailWiredBy is WiredByAgent, or absent.
	DetailWiredBy = "wiredBy"
	// WiredByAgent says that neutron-openvswitch-agent wires the port, and not OVN.
	WiredByAgent = "neutron-openvswitch-agent"
	// DetailLinuxBridge is true if the agent filters in a Linux bridge, or absent.
	DetailLinuxBridge = "linuxBridge"
)

// IPs returns the IP addresses of the port.
func (v *VIF) IPs() (ips []string) {
	for _, a := range v.Addresses {
		ips = append(ips, a.IP)
	}
	return ips
}

// ByAgent reports whether neutron-openvswitch-agent wires the port. Whether its traffic passes, and
// through its security groups, only the SDN shows then.
func (v *VIF) ByAgent() bool { return v.Type == "ovs" && v.Details[DetailWiredBy] == WiredByAgent }

// Address is one address of a port.
//
// +kubebuilder:validation:XValidation:rule="!isIP(self.ip) || ip(self.ip).family() == 6 || self.prefixLength <= 32",message="an IPv4 address has a prefixLength of 32 at most"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !isIP(self.ip) || !isIP(self.gateway) || ip(self.gateway).family() == ip(self.ip).family()",message="the gateway has to be of the same IP family as the address"
type Address struct {
	// The address, in its shortest form.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="write an IP address, as in 10.0.0.5 or fd00::5, without a prefix length"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip.isCanonical(self)",message="write the IP address in its shortest form and in lower case, as in fd00::5"
	IP string `json:"ip"`
	// Length of the subnet's prefix, in bits.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	PrefixLength int32 `json:"prefixLength"`
	// Subnet of the address in the SDN.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SubnetID string `json:"subnetID,omitempty"`
	// Gateway of the subnet; absent if it has none.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="write the gateway as an IP address, as in 10.0.0.1 or fd00::1"
	Gateway string `json:"gateway,omitempty"`
}

// Route is a route that a pod gets.
//
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.destination) || !isIP(self.gateway) || cidr(self.destination).ip().family() == ip(self.gateway).family()",message="the gateway has to be of the same IP family as the destination"
type Route struct {
	// Addresses that the route is for, as a prefix.
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="write the destination as a prefix, as in 10.96.0.0/16 or fd00::/64"
	Destination string `json:"destination"`
	// Address that they are reached through.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="write the gateway as an IP address, as in 10.0.0.1 or fd00::1"
	Gateway string `json:"gateway"`
}

// PodReference names one pod and one of its interfaces. The UID distinguishes pods of the same
// name: a StatefulSet's recreated pod has another UID.
type PodReference struct {
	// Namespace of the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the pod: another pod of the same name is another pod.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// Name of the interface in the pod.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^/: ]+$') && self != '.' && self != '..'",message="write an interface name of 1 to 15 characters, as in eth0"
	Interface string `json:"interface"`
	// Whether the pod's default route uses this interface.
	// +optional
	Default bool `json:"default,omitempty"`
}

// PortPhase sums up where a port is in its life.
//
// +kubebuilder:validation:Enum=Available;Bound;Recycling;Deleting;Failed
type PortPhase string

// The phases of a port.
const (
	// PortAvailable is a free port that a pod may have.
	PortAvailable PortPhase = "Available"
	// PortBound is a port that a pod has.
	PortBound PortPhase = "Bound"
	// PortRecycling is a port given back that is not yet fit for the next pod.
	PortRecycling PortPhase = "Recycling"
	// PortDeleting is a port on its way out of the SDN.
	PortDeleting PortPhase = "Deleting"
	// PortFailed is a port that the SDN refuses to put in order.
	PortFailed PortPhase = "Failed"
)

// KuryrPortStatus is the state of a port. The port reconciler writes it, except attachment, which
// the node's daemon writes.
type KuryrPortStatus struct {
	// Where the port is in its life: Available is free and fit for a pod, Bound
	// has a pod, Recycling was given back and is not fit yet, Deleting is on
	// its way out of the SDN, Failed the SDN refuses to put in order.
	// +optional
	Phase PortPhase `json:"phase,omitempty"`
	// Security groups that the SDN has on the port.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	AppliedSecurityGroupIDs []string `json:"appliedSecurityGroupIDs,omitempty"`
	// Whether the SDN passes the port's traffic, as far as the controller knows. A node that can
	// see that itself (OVN) does not wait for this field.
	// +optional
	Active bool `json:"active,omitempty"`
	// Sandbox for which the SDN was asked whether the port is active. Present while a port is active
	// that neutron-openvswitch-agent wires: the agent wires it anew for each sandbox.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ActiveFor string `json:"activeFor,omitempty"`
	// Written by the node's daemon: present while the port is plugged.
	// +optional
	Attachment *Attachment `json:"attachment,omitempty"`
	// Ready: the port is as its spec wants it. Progressing: Kuryr is at work on it.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Attachment says in which sandbox a port is plugged.
type Attachment struct {
	// Sandbox that has the port, in the container runtime's words.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ContainerID string `json:"containerID"`
	// Name of the interface in the sandbox.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface"`
	// When the call that plugged it (ADD of the container runtime) began.
	Since metav1.Time `json:"since"`
	// Whether neutron-openvswitch-agent has put the port into its network. The controller then asks the
	// SDN whether the port is active. Absent for ports that the agent does not wire.
	// +optional
	Tagged bool `json:"tagged,omitempty"`
}
