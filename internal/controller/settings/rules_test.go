// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

func of(pairs ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.MatchLabels[pairs[i]] = pairs[i+1]
	}
	return s
}

// TestLevels: each level comes from the first override that matches and sets it.
func TestLevels(t *testing.T) {
	minute := metav1.Duration{Duration: time.Minute}
	r := NewRules(Settings{Pools: config.Pools{Min: 5, Batch: 10, TTL: minute, Overrides: []config.PoolOverride{
		{NodeSelector: of("size", "l"), Min: new(int32(20))},
		{NodeSelector: of("size", "l"), NamespaceSelector: of("team", "a"), Max: new(int32(8)), Min: new(int32(1))},
		{NamespaceSelector: of("team", "a"), Batch: new(int32(3)), TTL: &metav1.Duration{}},
		{NodeSelector: of(), Min: new(int32(7)), Batch: new(int32(4))},
		{NamespaceSelector: of("team", "b")},
	}}})
	large, small := labels.Set{"size": "l"}, labels.Set{"size": "s"}
	a, b, c := labels.Set{"team": "a"}, labels.Set{"team": "b"}, labels.Set{"team": "c"}
	for _, tc := range []struct {
		name            string
		node, namespace labels.Set
		of              Sharing
		want            pool.Levels
	}{
		{"large node", large, nil, OfAll, pool.Levels{Min: 20, Batch: 4, TTL: time.Minute}},
		{"small node", small, nil, OfAll, pool.Levels{Min: 7, Batch: 4, TTL: time.Minute}},
		{"min of one override, max of another", large, a, OfNamespace, pool.Levels{Min: 8, Max: 8, Batch: 3}},
		{"namespace on a small node", small, a, OfNamespace, pool.Levels{Min: 7, Batch: 3}},
		{"namespace that says nothing", small, b, OfNamespace, pool.Levels{Min: 7, Batch: 4, TTL: time.Minute}},
		{"override of a namespace's network", small, a, OfNetwork, pool.Levels{Min: 7, Batch: 3}},
	} {
		if diff := cmp.Diff(tc.want, r.Levels(tc.node, tc.namespace, tc.of)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	for ns, want := range map[string]bool{"a": true, "b": true, "c": false} {
		set := map[string]labels.Set{"a": a, "b": b, "c": c}[ns]
		if got := r.Apart(small, set); got != want {
			t.Errorf("team %s has pools of its own: %v, want %v", ns, got, want)
		}
	}
	if !r.ByNamespace || r.ByPod {
		t.Errorf("by namespace %v, by pod %v; want true, false", r.ByNamespace, r.ByPod)
	}
}

// TestMinFree: the pools of networks of namespaces have a min of their own, which overrides replace.
func TestMinFree(t *testing.T) {
	r := NewRules(Settings{
		Networks: config.Networks{MinFree: 2},
		Pools:    config.Pools{Min: 5, Overrides: []config.PoolOverride{{NamespaceSelector: of("team", "a"), Min: new(int32(9))}}},
	})
	for _, tc := range []struct {
		namespace labels.Set
		of        Sharing
		want      int
	}{{nil, OfNetwork, 2}, {nil, OfNamespace, 5}, {nil, OfAll, 5}, {labels.Set{"team": "a"}, OfNetwork, 9}} {
		if got := r.Levels(nil, tc.namespace, tc.of).Min; got != tc.want {
			t.Errorf("min of a pool of namespace %v, sharing %d = %d, want %d", tc.namespace, tc.of, got, tc.want)
		}
	}
}

// TestSubnetsOfNodes: the subnets of a node replace those of pods.
func TestSubnetsOfNodes(t *testing.T) {
	r := NewRules(Settings{Pods: config.Pods{SubnetIDs: []string{"s"}}})
	got := r.Key(config.NodePorts{SubnetIDs: []string{"rack"}}, "", "")
	if !slices.Equal(got.SubnetIDs, []string{"rack"}) {
		t.Errorf("a node with subnets of its own has pools in %v, want them in rack", got.SubnetIDs)
	}
	if got := r.Key(config.NodePorts{}, "", ""); !slices.Equal(got.SubnetIDs, []string{"s"}) {
		t.Errorf("a node without them has pools in %v, want those of pods", got.SubnetIDs)
	}
}

// TestPodGroups: the first matching rule counts. A rule with no groups is a rule.
func TestPodGroups(t *testing.T) {
	r := NewRules(Settings{Pods: config.Pods{SecurityGroups: []config.GroupRule{
		{PodSelector: of("quiet", "yes"), SecurityGroupIDs: []string{}},
		{NamespaceSelector: of("team", "a"), PodSelector: of("role", "web"), SecurityGroupIDs: []string{"b", "a", "b"}},
		{NamespaceSelector: of("team", "a"), SecurityGroupIDs: []string{"c"}},
	}}})
	for _, tc := range []struct {
		namespace, pod labels.Set
		want           []string
		ruled          bool
	}{
		{labels.Set{"team": "a"}, labels.Set{"quiet": "yes", "role": "web"}, []string{}, true},
		{labels.Set{"team": "a"}, labels.Set{"role": "web"}, []string{"a", "b"}, true},
		{labels.Set{"team": "a"}, nil, []string{"c"}, true},
		{nil, labels.Set{"role": "web"}, nil, false},
	} {
		got, ruled := r.PodGroups("", tc.namespace, tc.pod)
		if diff := cmp.Diff(tc.want, got); diff != "" || ruled != tc.ruled {
			t.Errorf("groups of %v in %v = %v, %v; want %v, %v", tc.pod, tc.namespace, got, ruled, tc.want, tc.ruled)
		}
	}
	if !r.ByNamespace || !r.ByPod {
		t.Errorf("by namespace %v, by pod %v; want both", r.ByNamespace, r.ByPod)
	}
}

// TestPortsOn: the first entry that selects a node counts.
func TestPortsOn(t *testing.T) {
	r := NewRules(Settings{Pods: config.Pods{VIFType: "ovs"}, Nodes: []config.NodePorts{
		{NodeSelector: of("vm", "yes", "old", "yes"), VIFType: "macvlan"},
		{NodeSelector: of("vm", "yes"), VIFType: "vlan"},
		{NodeSelector: of("plain", "yes")},
	}})
	for want, node := range map[string]labels.Set{
		"macvlan": {"vm": "yes", "old": "yes"}, "vlan": {"vm": "yes"}, "": {"plain": "yes"}, "ovs": {},
	} {
		if got := r.PortsOn(node).VIFType; got != want {
			t.Errorf("vifType of a node with %v = %q, want %q", node, got, want)
		}
	}
}

// TestPoolsKeepTheirNames: the names of pools in running clusters stay the same in the next
// version. They also stay when another subnet is added beside their subnet.
func TestPoolsKeepTheirNames(t *testing.T) {
	more := map[string][]string{"s4": {"s5"}, "s6": {"s7", "s8"}}
	for _, tc := range []struct {
		pods                                config.Pods
		network, vifType, parent, namespace string
		want                                string
	}{
		{config.Pods{ProjectID: "p", SubnetIDs: []string{"s4", "s6"}, SecurityGroupIDs: []string{"g2", "g1"}}, "n", "vlan", "parent", "team-a", "metal-1-e4b67cfcff"},
		{config.Pods{SubnetIDs: []string{"s4"}}, "", "", "", "", "metal-1-0dd79278ce"},
	} {
		for _, tc.pods.MoreSubnetIDs = range []map[string][]string{nil, more} {
			r := NewRules(Settings{Pods: tc.pods})
			key := r.Key(config.NodePorts{VIFType: tc.vifType}, tc.parent, tc.namespace)
			key.NetworkID = tc.network
			if got := pool.Name(pool.KeyOn("metal-1", key)); got != tc.want {
				t.Errorf("the pool of %+v is called %s, want %s", tc.pods, got, tc.want)
			}
		}
	}
}
