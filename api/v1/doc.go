// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1 holds the Kubernetes API types of Kuryr, group openstack.org.
//
// A KuryrPort is to a pod what a PersistentVolume is to its claim, and a KuryrPortPool is its
// storage class. The objects are the memory of the controller: its knowledge of the SDN is here,
// not in the process.
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
		&KuryrNetwork{}, &KuryrNetworkList{},
		&KuryrCluster{}, &KuryrClusterList{},
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
	// FillAnnotation on a KuryrPortPool orders a number of free ports, once: a whole number, at
	// least 1. The controller removes it when the pool has had that many free ports.
	FillAnnotation = "kuryr.openstack.org/fill"
	// NodeAnnotation on a KuryrPortPool of a virtual machine is the UID of the
	// node that was found to be the machine of the pool's key: another node of
	// that name may be another machine. The controller writes it.
	NodeAnnotation = "kuryr.openstack.org/node-uid"
	// MachineAnnotation, beside NodeUIDAnnotation, holds the system UUID and the addresses that the
	// Node had then. A Node with other values may be another machine.
	MachineAnnotation = "kuryr.openstack.org/machine"
	// NetworkFinalizer keeps a KuryrNetwork until its network is gone from the SDN.
	NetworkFinalizer = "kuryr.openstack.org/kuryrnetwork-finalizer"
	// ProjectAnnotation on a Namespace names the project of its network, ports and load balancers:
	// one of the configuration's projects.
	ProjectAnnotation = "openstack.org/kuryr-project"
	// NetworkAnnotation on a Namespace names the network of its pods: one of the configuration's
	// networks.given, by its name.
	NetworkAnnotation = "openstack.org/kuryr-network"
	// NetworkModeAnnotation on a Namespace names the network mode of the namespace: one of the
	// configuration's networks.allowedModes.
	NetworkModeAnnotation = "openstack.org/kuryr-network-mode"
	// NetworkNowLabel on a Namespace, with any value except false, has its network made before its
	// first pod.
	NetworkNowLabel = "kuryr.openstack.org/network-now"
	// LeaveAloneLabel on a Service, with any value except false, makes Kuryr leave the Service
	// alone. Other proxies may serve it: kube-proxy does not know this label.
	LeaveAloneLabel = "kuryr.openstack.org/leave-alone"
)

// Condition types, the same for all of Kuryr's kinds but the last one.
const (
	// ConditionReady: the object is as its spec wants it.
	ConditionReady = "Ready"
	// ConditionProgressing: Kuryr is working on the object.
	ConditionProgressing = "Progressing"
	// ConditionOverQuota: the SDN refuses further resources because a quota is full.
	ConditionOverQuota = "OverQuota"
	// ConditionSubnetExhausted: a subnet has no free address.
	ConditionSubnetExhausted = "SubnetExhausted"
	// ConditionSupported: the provider can do everything that the Service asks for.
	ConditionSupported = "Supported"
	// ConditionInSync: the cloud matched the object's status at the last check.
	ConditionInSync = "InSync"
	// ConditionChecked: the last preflight checks reached the cloud.
	ConditionChecked = "Checked"
	// ConditionServing: the controller serves. It is False while a first start waits because of what
	// preflight finds.
	ConditionServing = "Serving"
	// ConditionPlanned, on a Service, is True if its load balancers are planned as it asks for. The
	// message lists what is not planned, and settings without effect. The condition is absent if
	// there is nothing to report. On a KuryrNetwork it is False if the namespace or the configuration
	// asks for what Kuryr does not do, or does only once the namespace has no pods.
	ConditionPlanned = "kuryr.openstack.org/Planned"
)
