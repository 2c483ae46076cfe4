// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KuryrPortPool is a pool of like ports: one project, network, node (or trunk)
// and set of security groups. Its name is a short readable hash of that key.
// It counts its ports and never lists them, so that it stays small and cool.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=kpp
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.key.nodeName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.key.nodeName`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.available`
// +kubebuilder:printcolumn:name="Bound",type=integer,JSONPath=`.status.bound`
// +kubebuilder:printcolumn:name="Recycling",type=integer,JSONPath=`.status.recycling`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waitingPods`
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.min`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.max`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KuryrPortPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Key and levels of the pool.
	Spec KuryrPortPoolSpec `json:"spec"`
	// State of the pool.
	// +optional
	Status KuryrPortPoolStatus `json:"status,omitzero"`
}

// KuryrPortPoolList is a list of KuryrPortPools.
//
// +kubebuilder:object:root=true
type KuryrPortPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KuryrPortPool `json:"items"`
}

// KuryrPortPoolSpec is the key of a pool, which is fixed, and its levels.
//
// +kubebuilder:validation:XValidation:rule="self.key == oldSelf.key",message="spec.key is fixed: another key is another pool, which Kuryr makes by itself"
// +kubebuilder:validation:XValidation:rule="self.max == 0 || self.min <= self.max",message="min is above max: lower min, raise max, or write max: 0 for no upper limit"
type KuryrPortPoolSpec struct {
	// Common properties of the pool's ports; immutable.
	Key PoolKey `json:"key"`
	// Free ports to keep at least.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Min int32 `json:"min"`
	// Free ports to keep at most: beyond it a port given back is deleted. 0 is no limit.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Max int32 `json:"max"`
	// Ports to ask the SDN for in one request, at most.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	Batch int32 `json:"batch"`
	// How long a free port above min is kept unused, as in 10m; 0s deletes it at once.
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s|ms|us|µs|ns))+$') && duration(self) <= duration('87600h')",message="write ttl as a time of up to ten years with its unit, as in 10m, or 0s to delete unused ports above min at once"
	// +kubebuilder:validation:Type=string
	TTL metav1.Duration `json:"ttl"`
	// How long a port given back rests before the next pod may have it, as in 30s.
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s|ms|us|µs|ns))+$') && duration(self) <= duration('87600h')",message="write cooldown as a time of up to ten years with its unit, as in 30s, or 0s for none"
	// +kubebuilder:validation:Type=string
	Cooldown metav1.Duration `json:"cooldown"`
}

// PoolKey holds the common properties of a pool's ports.
type PoolKey struct {
	// Project of the ports; empty is that of Kuryr's own credential.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ProjectID string `json:"projectID,omitempty"`
	// Network of the ports; empty is that of the subnets.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	NetworkID string `json:"networkID,omitempty"`
	// Subnets that each port gets an address of, one each.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	SubnetIDs []string `json:"subnetIDs"`
	// Node that the ports are bound to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
	// Port of the node if the node is a virtual machine; empty for a bare-metal node. The pool's
	// ports are subports of its trunk (vlan), or address pairs of it (macvlan).
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ParentPortID string `json:"parentPortID,omitempty"`
	// Security groups of a free port, and of a bound port unless a policy sets others.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	SecurityGroupIDs []string `json:"securityGroupIDs,omitempty"`
	// Namespace whose pods get the pool's ports; empty: pods of all namespaces.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Port type that nodes plug; empty: the type that the SDN reports for each port.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="write the type of the vif in lower case, as in ovs or bridge, or leave it out to plug ports as the SDN says"
	VIFType string `json:"vifType,omitempty"`
}

// KuryrPortPoolStatus counts a pool. The pool reconciler writes it.
type KuryrPortPoolStatus struct {
	// Free ports, fit for a pod.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Available int32 `json:"available"`
	// Ports that pods have.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Bound int32 `json:"bound"`
	// Ports given back and not yet fit for the next pod, or on their way out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Recycling int32 `json:"recycling"`
	// All ports of the pool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Total int32 `json:"total"`
	// Scheduled pods that want a port of this pool and have none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	WaitingPods int32 `json:"waitingPods"`
	// When the SDN last gave the pool ports.
	// +optional
	LastRefill *metav1.Time `json:"lastRefill,omitempty"`
	// Ready: every waiting pod gets a port. OverQuota: the project's quota of
	// ports is used up, or nearly. SubnetExhausted: a subnet's addresses are.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
