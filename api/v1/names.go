// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

// Names that only Kuryr reads and writes: they pass knowledge to the next process.
const (
	// ReleasedAnnotation on a free KuryrPort is the time when a pod returned the port. A port that
	// never had a pod has no such annotation.
	ReleasedAnnotation = "kuryr.openstack.org/released-at"
	// BoundAnnotation on a KuryrPort is the time when it was bound to its pod. By it the daemon tells
	// the ports of two pods of one name.
	BoundAnnotation = "kuryr.openstack.org/bound-at"
	// MemberGroupsAnnotation on a KuryrPort lists, separated by commas, the security groups that
	// the port has as a member of load balancers. Until the controller knows a load balancer, as
	// after a start, the port keeps these groups.
	MemberGroupsAnnotation = "kuryr.openstack.org/member-security-groups"
	// KeptSourceRangesAnnotation on a KuryrLoadBalancer lists, separated by commas, the source
	// ranges that its load balancers last enforced. It is absent while the ranges are being
	// changed. After a restart it is what Kuryr knows of the ranges while Octavia does not answer.
	KeptSourceRangesAnnotation = "kuryr.openstack.org/kept-source-ranges"
	// ShownAnnotation on a KuryrPort, a KuryrLoadBalancer or a KuryrNetwork is a marker: a controller that
	// takes keys over waits until its cache shows it, and so all earlier writes of others.
	ShownAnnotation = "kuryr.openstack.org/shown"

	// ClusterIPHolderLabel is on Services of Kuryr's own namespace that hold the cluster IP of
	// a deleted Service, as Octavia does not delete the load balancer there.
	ClusterIPHolderLabel = "kuryr.openstack.org/cluster-ip-holder"
	// HeldForAnnotation on such a Service is the UID of the one that is deleted.
	HeldForAnnotation = "kuryr.openstack.org/held-for"
	// HeldClusterIPAnnotation is the cluster IP that it is to hold, whether it has it yet or not.
	HeldClusterIPAnnotation = "kuryr.openstack.org/held-cluster-ip"
	// HeldLoadBalancersAnnotation names the load balancers that it waits for, with commas between.
	HeldLoadBalancersAnnotation = "kuryr.openstack.org/held-load-balancers"
	// ClusterIPTakenAnnotation is the UID of the Service that got the cluster IP first, and was told.
	ClusterIPTakenAnnotation = "kuryr.openstack.org/cluster-ip-taken-by"
	// ReportedAnnotation on a Service names the notes of its condition ConditionPlanned
	// that had an Event, with commas between: the reason of each, and what tells it from
	// others of that reason.
	ReportedAnnotation = "kuryr.openstack.org/reported-notes"
)

// Field owners of server-side apply and of patches: each field of an object has one
// writer.
const (
	FieldOwnerPool             = "kuryr-pool"         // KuryrPorts' specs, labels; KuryrPortPools
	FieldOwnerPort             = "kuryr-port"         // a KuryrPort's finalizer and status, but for its attachment
	FieldOwnerAnnotation       = "kuryr-annotation"   // the pod's annotation
	FieldOwnerService          = "kuryr-service"      // a KuryrLoadBalancer's spec; a Service's finalizer, ingress and condition; Services that hold cluster IPs
	FieldOwnerLoadBalancer     = "kuryr-loadbalancer" // a KuryrLoadBalancer's finalizer and status
	FieldOwnerNamespaceNetwork = "kuryr-namespace"    // a KuryrNetwork's spec, and its condition Planned
	FieldOwnerNetwork          = "kuryr-network"      // a KuryrNetwork's finalizer and status
	FieldOwnerShard            = "kuryr-shard"        // an annotation of a KuryrPort, a KuryrLoadBalancer or a KuryrNetwork
	FieldOwnerCluster          = "kuryr-cluster"      // the KuryrCluster and its status
)
