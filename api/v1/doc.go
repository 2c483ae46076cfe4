// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1 holds the Kubernetes API types of Kuryr, group openstack.org.
//
// A KuryrPort is to a pod what a PersistentVolume is to its claim, and a
// KuryrPortPool is its storage class. The objects are the memory of the
// controller: what it knows of the SDN is here, not in the process.
//
// Every status field has one writer, named in its comment.
//
// +kubebuilder:object:generate=true
// +groupName=openstack.org
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all types of this package.
var GroupVersion = schema.GroupVersion{Group: "openstack.org", Version: "v1"}

// AddToScheme adds the types of this package to s.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&KuryrPort{}, &KuryrPortList{},
		&KuryrPortPool{}, &KuryrPortPoolList{},
		&KuryrLoadBalancer{}, &KuryrLoadBalancerList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Names that Kuryr writes on objects.
const (
	// PortFinalizer keeps a KuryrPort until its port is gone from the SDN.
	PortFinalizer = "kuryr.openstack.org/kuryrport-finalizer"
	// PortStatusLabel mirrors a KuryrPort's phase, for selection: the
	// portStatus of the port CRD design.
	PortStatusLabel = "kuryr.openstack.org/port-status"
	// VIFAnnotation on a pod names its KuryrPorts.
	VIFAnnotation = "openstack.org/kuryr-vif"
	// FillAnnotation on a KuryrPortPool asks for so many free ports, once: a
	// whole number, 1 at least. The controller takes it away when it is reached.
	FillAnnotation = "kuryr.openstack.org/fill"
	// NodeAnnotation on a KuryrPortPool of a virtual machine is the UID of the
	// node that was found to be the machine of the pool's key: another node of
	// that name may be another machine. The controller writes it.
	NodeAnnotation = "kuryr.openstack.org/node-uid"
	// MachineAnnotation, beside it, is what that node said of its machine then: its
	// system UUID and its addresses. One that says otherwise may be another machine.
	MachineAnnotation = "kuryr.openstack.org/machine"
	// LeaveAloneLabel on a Service, with any value but false, says that Kuryr is not
	// to serve it. Others may: kube-proxy knows nothing of this label.
	LeaveAloneLabel = "kuryr.openstack.org/leave-alone"
)

// Condition types, the same for all of Kuryr's kinds but the last one.
const (
	// ConditionReady says whether the object is as its spec wants it.
	ConditionReady = "Ready"
	// ConditionProgressing says whether Kuryr is at work on the object.
	ConditionProgressing = "Progressing"
	// ConditionOverQuota says whether the SDN refuses more for want of quota.
	ConditionOverQuota = "OverQuota"
	// ConditionSubnetExhausted says whether a subnet has no addresses left.
	ConditionSubnetExhausted = "SubnetExhausted"
	// ConditionSupported says whether the provider can do all that a Service asks for.
	ConditionSupported = "Supported"
	// ConditionInSync says whether the last look at the cloud showed what the
	// object says.
	ConditionInSync = "InSync"
	// ConditionPlanned, on a Service, says whether its load balancers are planned as
	// it asks for, and all there is to say of that. It is not there if there is nothing.
	ConditionPlanned = "kuryr.openstack.org/Planned"
)
