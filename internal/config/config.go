// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package config reads Kuryr's one configuration file into a checked struct.
// It is strict: an unknown field is an error, and every fault is reported at
// once, with its path. Flags carry only file paths, addresses and the log level.
package config

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Config is the file, checked, with defaults filled in.
type Config struct {
	APIVersion string `json:"apiVersion"` // kuryr.openstack.org/v1alpha1
	Kind       string `json:"kind"`       // KuryrConfiguration

	// ClusterID marks what this cluster owns in the cloud. Empty: the UID of
	// the namespace kube-system.
	ClusterID string  `json:"clusterID,omitempty"`
	Neutron   Neutron `json:"neutron"`
	Pods      Pods    `json:"pods"`
	Pools     Pools   `json:"pools"`
	Orphans   Orphans `json:"orphans"`
	Node      Node    `json:"node"`
}

// Neutron says how the controller reaches the cloud. The credential is not
// here: it comes from clouds.yaml or OS_*, as for every OpenStack client.
type Neutron struct {
	Cloud          string          `json:"cloud,omitempty"`          // entry of clouds.yaml; empty: OS_CLOUD, or OS_AUTH_URL and its kin
	RequestTimeout metav1.Duration `json:"requestTimeout,omitempty"` // of one HTTP request; 60s
	RequestsPerSec float64         `json:"requestsPerSecond,omitempty"`
	MaxConcurrent  int             `json:"maxConcurrentRequests,omitempty"`
}

// Pods says what port a pod gets.
type Pods struct {
	ProjectID        string   `json:"projectID,omitempty"`
	NetworkID        string   `json:"networkID,omitempty"` // empty: that of the subnets
	SubnetIDs        []string `json:"subnetIDs"`
	SecurityGroupIDs []string `json:"securityGroupIDs,omitempty"`
	VIFType          string   `json:"vifType,omitempty"` // empty: as Neutron says of each port
	PortDebug        bool     `json:"portDebug,omitempty"`
}

// Pools says what levels pools are kept at.
type Pools struct {
	Min      int32           `json:"min"`
	Max      int32           `json:"max"`
	Batch    int32           `json:"batch"`
	TTL      metav1.Duration `json:"ttl"`
	Cooldown metav1.Duration `json:"cooldown"`
}

// Orphans says how ports that belong to nobody are collected.
type Orphans struct {
	Interval metav1.Duration `json:"interval"` // between two looks at the cloud's inventory; 2m
	Grace    metav1.Duration `json:"grace"`    // a port has to be nobody's twice, this far apart; 1m
}

// Node is the daemon's part.
type Node struct {
	OVSDB      string          `json:"ovsdb,omitempty"`      // unix:/run/openvswitch/db.sock
	Bridge     string          `json:"bridge,omitempty"`     // integration bridge, br-int; for vifType bridge, the Linux bridge
	DriverDir  string          `json:"driverDir,omitempty"`  // /usr/libexec/kuryr
	StateDir   string          `json:"stateDir,omitempty"`   // journal: /var/lib/kuryr
	MTU        int             `json:"mtu,omitempty"`        // 0: no bound but the port's own
	AddTimeout metav1.Duration `json:"addTimeout,omitempty"` // of one ADD, 60s; kubelet gives up after 4m
}
