// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/sites"
)

// many is a cache with many nodes that accept pods, and namespaces that all have pools of their
// own. It counts what is read.
type many struct {
	client.Client
	nodes, namespaces int
	gets, lists       int
}

func (m *many) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	m.gets++
	obj.SetName(key.Name)
	if node, ok := obj.(*corev1.Node); ok {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	return nil
}

func (m *many) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	m.lists++
	switch list := list.(type) {
	case *corev1.NodeList:
		list.Items = make([]corev1.Node, m.nodes)
		for i := range list.Items {
			list.Items[i].Name = fmt.Sprint("n", i)
		}
	case *metav1.PartialObjectMetadataList:
		list.Items = make([]metav1.PartialObjectMetadata, m.namespaces)
		for i := range list.Items {
			list.Items[i].Name = fmt.Sprint("ns", i)
		}
	}
	return nil
}

// TestWarmUpOfManyNamespaces: the cost of an event of one namespace does not grow with the
// number of the others. Nor does the search for the namespace of a new pool.
func TestWarmUpOfManyNamespaces(t *testing.T) {
	const nodes = 50
	m := &many{nodes: nodes, namespaces: 100000}
	live := settings.NewLive(settings.Settings{
		Pods: config.Pods{SubnetIDs: []string{"s"}},
		Pools: config.Pools{
			WarmUp: config.WarmUp{Namespaces: true}, Overrides: []config.PoolOverride{{NamespaceSelector: &metav1.LabelSelector{}}},
		},
	})
	networks := &kube.Networks{}
	networks.Lack()
	r := &Reconciler{Options: Options{Settings: live}, client: m, memory: newMemory(), sites: sites.New(sites.Options{Client: m, Settings: live, Networks: networks})}
	ns := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "ns7"}}
	reqs := r.ofNamespace(t.Context(), ns)
	if len(reqs) != nodes || m.lists > 3 || m.gets > 4*nodes {
		t.Errorf("%d pools of %d nodes, with %d objects and %d lists read; want each node's, a few objects for each and 3 lists",
			len(reqs), nodes, m.gets, m.lists)
	}
	s, err := r.sites.On(t.Context(), reqs[0].Node)
	if err != nil {
		t.Fatal(err)
	}
	v := &view{req: reqs[0], site: s}
	if key, err := r.find(t.Context(), v, nil); err != nil || key == nil || key.Namespace != "ns7" {
		t.Errorf("the pool's key is %+v, %v; want that of namespace ns7", key, err)
	}
	if m.lists > 3 {
		t.Errorf("%d lists read to find out whose pool it is", m.lists-3)
	}
}
