// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package group keeps apart the security groups that a KuryrPort has for its pod and
// those that it has as a member of load balancers. An annotation of the port names the
// second ones, so that both can change without each other. The package is pure.
package group

import (
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// most is how many groups a KuryrPort holds.
const most = 64

// MemberGroups returns the groups that a port has as a member of load balancers.
func MemberGroups(port *v1.KuryrPort) []string {
	if text := port.Annotations[v1.MemberGroupsAnnotation]; text != "" {
		return v1.GroupSet(strings.Split(text, ","))
	}
	return nil
}

// SetMemberGroups writes what MemberGroups reads.
func SetMemberGroups(port *v1.KuryrPort, groups []string) {
	if len(groups) == 0 {
		delete(port.Annotations, v1.MemberGroupsAnnotation)
		return
	}
	if port.Annotations == nil {
		port.Annotations = map[string]string{}
	}
	port.Annotations[v1.MemberGroupsAnnotation] = strings.Join(groups, ",")
}

// Join returns the groups of a pod and those of load balancers, as many as a port holds; the pod's
// come first. more are the load balancers' groups among them.
func Join(own, grants []string) (all, more []string) {
	own = v1.GroupSet(own)
	more = slices.DeleteFunc(slices.Clone(grants), func(id string) bool { return slices.Contains(own, id) })
	more = more[:min(len(more), max(0, most-len(own)))]
	return v1.GroupSet(slices.Concat(own, more)), more
}

// Without returns groups without those of load balancers, sorted.
func Without(groups, grants []string) []string {
	return slices.DeleteFunc(v1.GroupSet(groups), func(id string) bool { return slices.Contains(grants, id) })
}
