// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// These lists are all that the controller may do at the API server. `make generate` writes
// config/base/controller-roles.yaml from them. A kube.Feature starts once the controller has the
// permissions of its list. Where the cache is enough, "get" is missing.
var (
	permissionsForPods = []rbacv1.PolicyRule{
		allow("", "pods", "get list watch"),
		// Kuryr writes its annotation by the status: a client that may patch pods can run any
		// program on every node.
		allow("", "pods/status", "patch"),
		allow("", "nodes", "list watch"),
		allow("", "namespaces", "get list watch"), // labels; the UID of kube-system marks the cluster
		allow("networking.k8s.io", "networkpolicies", "list watch"),
		allow("events.k8s.io", "events", "create patch"),
		allow(v1.GroupVersion.Group, "kuryrports", "get list watch create patch delete"),
		allow(v1.GroupVersion.Group, "kuryrportpools", "list watch create patch delete"),
		allow(v1.GroupVersion.Group, "kuryrports/status kuryrportpools/status", "patch"),
		// The preflight checks. They also read the ranges of cluster IPs.
		allow(v1.GroupVersion.Group, "kuryrclusters", "get create"),
		allow(v1.GroupVersion.Group, "kuryrclusters/status", "patch"),
		allow("networking.k8s.io", "servicecidrs", "list"),
	}
	permissionsForServices = []rbacv1.PolicyRule{
		allow("", "services", "get list watch"),
		allow("", "services/status", "patch"), // finalizer, addresses and condition; no spec
		allow("discovery.k8s.io", "endpointslices", "list watch"),
		allow(v1.GroupVersion.Group, "kuryrloadbalancers", "get list watch create patch delete"),
		allow(v1.GroupVersion.Group, "kuryrloadbalancers/status", "patch"),
	}
	permissionsForNetworks = []rbacv1.PolicyRule{
		allow(v1.GroupVersion.Group, "kuryrnetworks", "get list watch create patch delete"),
		allow(v1.GroupVersion.Group, "kuryrnetworks/status", "patch"),
	}
	// permissionsInOwnNamespace are those in the controller's own namespace only.
	permissionsInOwnNamespace = []rbacv1.PolicyRule{
		allow("coordination.k8s.io", "leases", "get list watch create update patch delete"), // who owns which keys
		allow("", "events", "create patch"),
		allow("", "services", "create patch delete"), // those that hold the cluster IPs of deleted ones
	}
)

// allow returns a rule for resources of one API group. Resources and verbs are separated by spaces.
func allow(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs)}
}
