// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// Pods of one namespace are in one project, also on nodes with subnets of their own: a project that
// changes waits for them, and a KuryrNetwork that is not ready for a moment keeps their pools.
func TestAProjectThatChangesOnNodesWithSubnets(t *testing.T) {
	const rack, rackSubnet = "5f1c5aac-0000-4000-8000-0000000f0000", "5f1c5aac-0000-4000-8000-0000000f0001"
	for _, byNode := range []bool{false, true} {
		t.Run(fmt.Sprint("nodes[].subnetIDs ", byNode), func(t *testing.T) {
			b := newNetBed(t, "shared", func(s *settings.Settings) {
				s.Projects, s.Networks.MinFree = []config.Project{{ProjectID: "red-project"}, {ProjectID: "blue-project"}}, 1
				if byNode {
					s.Nodes = []config.NodePorts{{NodeSelector: &metav1.LabelSelector{}, SubnetIDs: []string{rackSubnet}}}
				}
			})
			b.cloud.AddSubnet(memory.Subnet{ID: rackSubnet, NetworkID: rack, Prefix: netip.MustParsePrefix("10.77.0.0/16"), Gateway: netip.MustParseAddr("10.77.0.1"), MTU: 1442})
			b.start()
			b.makeNamespace(b.namespace, map[string]string{v1.ProjectAnnotation: "red-project"})
			first := b.bound(b.pod("first", inNamespace(b.namespace)))
			b.ready(b.namespace)
			b.annotate(namespaceOf(b.namespace), v1.ProjectAnnotation, "blue-project")
			b.eventually("the change waits for the pods", func() bool { return b.reason(b.namespace, v1.ConditionPlanned) == v1.ReasonWaitsForPods })
			second := b.bound(b.pod("second", inNamespace(b.namespace)))
			if second.Spec.ProjectID != first.Spec.ProjectID || second.Spec.NetworkID != first.Spec.NetworkID {
				t.Errorf("the second pod is in project %s and network %s, want those of the first, %s and %s", second.Spec.ProjectID, second.Spec.NetworkID, first.Spec.ProjectID, first.Spec.NetworkID)
			}
		})
	}
}

// A label that the author of a pod writes gives it no group of the common project in another project.
// A rule that selects the namespace does.
func TestGroupsOfPodsInOtherProjects(t *testing.T) {
	const clients, reds = "5f1c5aac-0000-4000-8000-0000000000d1", "5f1c5aac-0000-4000-8000-0000000000d2"
	b := newNetBed(t, "shared", func(s *settings.Settings) {
		s.Projects = []config.Project{{ProjectID: "red-project", SecurityGroupIDs: []string{otherGroup}}}
		s.Pods.SecurityGroups = []config.GroupRule{
			{PodSelector: labelled("role", "client"), SecurityGroupIDs: []string{clients}},
			{NamespaceSelector: labelled("tenant", "red"), PodSelector: labelled("role", "client"), SecurityGroupIDs: []string{reds}},
		}
	})
	b.start()
	selected, common := b.namespace+"-selected", b.namespace+"-common"
	for namespace, want := range map[string]string{b.namespace: otherGroup, selected: reds, common: clients} {
		project := map[string]string{v1.ProjectAnnotation: "red-project"}
		switch namespace {
		case common:
			b.makeNamespace(namespace, nil)
		case selected:
			b.makeTenant(namespace, project)
		default:
			b.makeNamespace(namespace, project)
		}
		port := b.bound(b.pod("client", inNamespace(namespace), func(p *corev1.Pod) { p.Labels = map[string]string{"role": "client"} }))
		if got := port.Spec.SecurityGroupIDs; !slices.Equal(got, []string{want}) {
			t.Errorf("the pod of namespace %s in project %q has security groups %v, want %s", namespace, port.Spec.ProjectID, got, want)
		}
	}
}
