// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

// Names that Kuryr writes for itself alone: they tell the next process what this one knew.
const (
	// ReleasedAnnotation on a free KuryrPort says when it was given back. One that
	// never had a pod has none.
	ReleasedAnnotation = "kuryr.openstack.org/released-at"
	// MemberGroupsAnnotation on a KuryrPort names those of its security groups that it has as
	// a member of load balancers, with commas between: whose word is not known yet, as
	// after a start, leaves it these.
	MemberGroupsAnnotation = "kuryr.openstack.org/member-security-groups"
	// KeptSourceRangesAnnotation on a KuryrLoadBalancer holds the source ranges that its load balancers
	// were last seen to keep, with commas between; none while they are to get others. It
	// says, also after a restart, what is known of them while Octavia does not answer.
	KeptSourceRangesAnnotation = "kuryr.openstack.org/kept-source-ranges"
)

// Field owners of server-side apply and of patches: each field of an object has one
// writer.
const (
	FieldOwnerPool         = "kuryr-pool"         // KuryrPorts' specs, labels; KuryrPortPools
	FieldOwnerPort         = "kuryr-port"         // a KuryrPort's finalizer and status, but for its attachment
	FieldOwnerAnnotation   = "kuryr-annotation"   // the pod's annotation
	FieldOwnerService      = "kuryr-service"      // a KuryrLoadBalancer's spec; a Service's finalizer, ingress and condition
	FieldOwnerLoadBalancer = "kuryr-loadbalancer" // a KuryrLoadBalancer's finalizer and status
)
