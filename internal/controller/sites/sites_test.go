// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// shown is a cache with these nodes and namespaces.
type shown struct {
	client.Reader
	nodes      map[string]map[string]string
	namespaces map[string]map[string]string
}

func (s *shown) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	from := s.namespaces
	if _, ok := obj.(*corev1.Node); ok {
		from = s.nodes
	}
	labels, ok := from[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	obj.SetName(key.Name)
	obj.SetLabels(labels)
	return nil
}

// noNetworks is a cluster without KuryrNetworks.
type noNetworks struct{}

func (noNetworks) Of(context.Context, string) (*v1.KuryrNetwork, bool, error)   { return nil, false, nil }
func (noNetworks) WithSubnet(context.Context, string) (*v1.KuryrNetwork, error) { return nil, nil }
func (noNetworks) Lacking() bool                                                { return true }
func (noNetworks) IsVerified(*v1.KuryrNetwork) bool                             { return true }

// TestWhatIsNotKnownYet: a pod whose node or namespace the cache does not show gets no pool: the
// namespace may name a project.
func TestWhatIsNotKnownYet(t *testing.T) {
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	cache := &shown{
		nodes:      map[string]map[string]string{"n": nil},
		namespaces: map[string]map[string]string{"a": {"team": "a"}, "b": nil},
	}
	byNamespace := settings.Settings{Pools: config.Pools{Overrides: []config.PoolOverride{{NamespaceSelector: team}}}}
	byGroups := settings.Settings{Pods: config.Pods{SecurityGroups: []config.GroupRule{{NamespaceSelector: team, SecurityGroupIDs: []string{"g"}}}}}
	for _, tc := range []struct {
		name            string
		settings        settings.Settings
		node, namespace string
		led, grouped    bool
	}{
		{"known namespace", byNamespace, "n", "a", true, true},
		{"unknown namespace", byNamespace, "n", "new", false, true},
		{"unknown node", settings.Settings{}, "new", "a", false, true},
		{"unknown namespace without rules", settings.Settings{}, "n", "new", false, true},
		{"known namespace without rules", settings.Settings{}, "n", "b", true, true},
		{"groups by a known namespace", byGroups, "n", "b", true, true},
		{"groups by an unknown namespace", byGroups, "n", "new", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := (&Sites{Options: Options{Client: cache, Networks: noNetworks{}, Settings: settings.NewLive(tc.settings)}}).On(t.Context(), tc.node)
			if err != nil {
				t.Fatal(err)
			}
			if _, led, err := s.Pool(t.Context(), tc.namespace); led != tc.led || err != nil {
				t.Errorf("request = %v, %v; want %v", led, err, tc.led)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace}}
			if _, grouped, err := s.Groups(t.Context(), pod, nil); grouped != tc.grouped || err != nil {
				t.Errorf("groups = %v, %v; want %v", grouped, err, tc.grouped)
			}
		})
	}
}

// TestSameMachine: a missing part proves nothing, and one common address of several is enough.
func TestSameMachine(t *testing.T) {
	for _, tc := range []struct {
		then string
		uuid string
		ips  []string
		want bool
	}{
		{"", "u", []string{"192.0.2.1"}, true},
		{"u,192.0.2.1", "", nil, true},
		{"u,192.0.2.1", "U", []string{"192.0.2.1"}, true},
		{"u,192.0.2.1", "v", []string{"192.0.2.1"}, false},
		{"u,192.0.2.1", "u", []string{"192.0.2.2"}, false},
		{",192.0.2.1", "v", []string{"192.0.2.2"}, false},
		{"u,192.0.2.1,fd00::1", "u", []string{"fd00::1"}, true},
		{"u", "u", []string{"192.0.2.1"}, true},
	} {
		n := &corev1.Node{}
		n.Status.NodeInfo.SystemUUID = tc.uuid
		for _, ip := range tc.ips {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
		if got := sameMachine(tc.then, n); got != tc.want {
			t.Errorf("sameMachine(%q) of %s %v = %v, want %v", tc.then, tc.uuid, tc.ips, got, tc.want)
		}
	}
}

// unverified is a cluster with a KuryrNetwork whose status nobody has compared with the cloud.
type unverified struct {
	noNetworks
	of *v1.KuryrNetwork
}

func (u unverified) Of(context.Context, string) (*v1.KuryrNetwork, bool, error) {
	return u.of, true, nil
}
func (unverified) IsVerified(*v1.KuryrNetwork) bool { return false }

// TestNetworkThatGoesIsNotVerified: the pools of a namespace stay until the status of its network is compared
// with the cloud, but not once the network is being deleted: nobody compares it any more, and their free
// ports would keep it.
func TestNetworkThatGoesIsNotVerified(t *testing.T) {
	for _, deleting := range []bool{false, true} {
		kn := &v1.KuryrNetwork{Status: v1.KuryrNetworkStatus{NetworkID: "net"}}
		if deleting {
			kn.DeletionTimestamp = new(metav1.Now())
		}
		cache := &shown{nodes: map[string]map[string]string{"n": nil}, namespaces: map[string]map[string]string{"a": nil}}
		live := settings.NewLive(settings.Settings{Networks: config.Networks{NetworkChoice: config.NetworkChoice{Mode: string(v1.NetworkNamespace)}}})
		s, err := (&Sites{Options: Options{Client: cache, Networks: unverified{of: kn}, Settings: live}}).On(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		if _, leads, err := s.Own(t.Context(), "a"); leads || err != nil {
			t.Errorf("deleting %v: new ports are made: %v", deleting, err)
		}
		if s.Stays(&v1.PoolKey{Namespace: "a", NetworkID: "net"}) == deleting {
			t.Errorf("deleting %v: the pool stays: %v", deleting, !deleting)
		}
	}
}
