// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

var settings = pool.Settings{SubnetIDs: []string{"s1", "s2"}, SecurityGroupIDs: []string{"g2", "g1"}}

func onNode(node string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
}

// TestNameTellsPoolsApart: a name is the same for the same key whatever the
// order of the groups, another for each other key, and fit for an object.
func TestNameTellsPoolsApart(t *testing.T) {
	t.Parallel()
	base := pool.Name(pool.KeyOn("node-1", settings))
	if !strings.HasPrefix(base, "node-1-") {
		t.Errorf("Name = %q, want it to begin with its node", base)
	}
	same := settings
	same.SecurityGroupIDs = []string{"g1", "g2", "g1"}
	if got := pool.Name(pool.KeyOn("node-1", same)); got != base {
		t.Errorf("Name with the groups in another order = %q, want %q", got, base)
	}
	names := map[string]bool{base: true}
	for _, change := range []func(*pool.Settings){
		func(s *pool.Settings) { s.ProjectID = "p" },
		func(s *pool.Settings) { s.NetworkID = "p" },
		func(s *pool.Settings) { s.VIFType = "p" },
		func(s *pool.Settings) { s.ParentPortID = "p" },
		func(s *pool.Settings) { s.Namespace = "p" },
		func(s *pool.Settings) { s.SubnetIDs = []string{"s2", "s1"} },
		func(s *pool.Settings) { s.SubnetIDs = []string{"s1"} },
		func(s *pool.Settings) { s.SecurityGroupIDs = nil },
	} {
		other := settings
		change(&other)
		name := pool.Name(pool.KeyOn("node-1", other))
		if names[name] {
			t.Errorf("Name for %+v = %q, which is another key's", other, name)
		}
		names[name] = true
	}
	for _, node := range []string{"n", "node.example.com", "a-twenty-long-name-x.example.com", strings.Repeat("x.", 120) + "x"} {
		name := pool.Name(pool.KeyOn(node, settings))
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 || len(name) > 31 {
			t.Errorf("Name on %q = %q, %d characters: %v", node, name, len(name), faults)
		}
	}
}

// TestWants says which pods are to have a port.
func TestWants(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		want   bool
	}{
		{"scheduled", func(*corev1.Pod) {}, true},
		{"not scheduled", func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
		{"on the host's network", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, false},
		{"succeeded", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		{"failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		{"being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }, false},
	} {
		p := onNode("node")
		tc.change(p)
		if got := pool.Wants(p); got != tc.want {
			t.Errorf("Wants(a pod %s) = %v, want %v", tc.name, got, tc.want)
		}
	}
}
