// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// portOf is a port of a pod in a namespace; of no pod if the namespace is empty.
func portOf(name, namespace, project, subnet string) *v1.KuryrPort {
	p := &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.KuryrPortSpec{
		ProjectID: project, VIF: v1.VIF{Addresses: []v1.Address{{IP: "10.7.0.5", SubnetID: subnet}}},
	}}
	if namespace != "" {
		p.Spec.PodRef = &v1.PodReference{Namespace: namespace}
	}
	return p
}

// Pods of other projects are foreign to a namespace. Those of the namespace itself are not, and
// neither are those of the common project to each other, whose ID the configuration may not say.
func TestForeignPods(t *testing.T) {
	rules := settings.NewRules(settings.Settings{Projects: []config.Project{{ProjectID: "red"}, {ProjectID: "blue"}}})
	for _, c := range []struct {
		name            string
		home            home
		namespace, port string // of the pod
		project         string // of the port
		theirs          *v1.KuryrNetwork
		want            bool
	}{
		{"red and blue", home{podsProject: "red"}, "other", "b", "blue", nil, true},
		{"red and common", home{podsProject: "red"}, "other", "c", "common", nil, true},
		{"red and red", home{podsProject: "red"}, "other", "r", "red", nil, false},
		{"its own pod, of an earlier project", home{podsProject: "red"}, "shop", "b", "blue", nil, false},
		{"common and red", home{}, "other", "r", "red", nil, true},
		{"common and common", home{}, "other", "c", "common", nil, false},
		{"no pod", home{}, "", "r", "red", nil, false},
		{"common and green, which is not listed any more", home{}, "other", "g", "green", &v1.KuryrNetwork{Spec: v1.KuryrNetworkSpec{ProjectID: "green"}}, true},
		{"common and a common project of before, in a network of red", home{}, "other", "g", "green", &v1.KuryrNetwork{Spec: v1.KuryrNetworkSpec{ProjectID: "red"}}, false},
	} {
		if got := c.home.isForeign(rules, portOf(c.port, c.namespace, c.project, "s"), "shop", c.theirs); got != c.want {
			t.Errorf("%s: foreign = %t, want %t", c.name, got, c.want)
		}
	}
}

// Of two ports with one address, in networks that are not connected, the one of the namespace
// counts.
func TestLikeliestPort(t *testing.T) {
	free, theirs, ours := portOf("a", "", "red", "a"), portOf("b", "other", "blue", "theirs"), portOf("c", "shop", "red", "ours")
	for _, ports := range [][]*v1.KuryrPort{{free, theirs, ours}, {ours, theirs, free}} {
		if got := likeliest(ports, "shop"); got != ours || subnetOf(got, netip.MustParseAddr("10.7.0.5")) != "ours" {
			t.Errorf("the port is %v, want the one of the namespace", got)
		}
	}
	if got := likeliest([]*v1.KuryrPort{free, theirs}, "shop"); got != theirs {
		t.Errorf("the port is %v, want the one of another namespace", got)
	}
	if got := likeliest([]*v1.KuryrPort{free}, "shop"); got != nil {
		t.Errorf("the port is %v, want none, as no pod has it", got)
	}
}
