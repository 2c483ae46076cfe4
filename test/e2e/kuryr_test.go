// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

type neutronPort = cluster.Port

var getOptions = metav1.GetOptions{}

// configure changes the section pods of Kuryr's configuration for the rest of
// the test, as a person with kubectl would.
func (f *fixture) configure(t *testing.T, change func(pods map[string]any)) {
	t.Helper()
	cm := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: kuryrNamespace, Name: "kuryr-config"}
	if err := f.Client.Get(t.Context(), key, cm); err != nil {
		t.Fatal(err)
	}
	before := cm.Data["kuryr.yaml"]
	var document map[string]any
	if err := yaml.Unmarshal([]byte(before), &document); err != nil {
		t.Fatal(err)
	}
	change(document["pods"].(map[string]any))
	f.write(t.Context(), t, string(must(yaml.Marshal(document))(t)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		f.write(ctx, t, before)
	})
}

func (f *fixture) write(ctx context.Context, t *testing.T, document string) {
	t.Helper()
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = kuryrNamespace, "kuryr-config"
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data": {"kuryr.yaml": `+jsonString(document)+`}}`))
	if err := f.Client.Patch(ctx, cm, patch); err != nil {
		t.Error(err)
	}
	// A change of the pod makes kubelet look at its volumes at once, and not
	// within its next minute.
	poke := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"e2e/poke": `+jsonString(time.Now().String())+`}}}`))
	for _, pod := range f.kuryrPods(ctx, t) {
		if strings.HasPrefix(pod.Name, "kuryr-controller") {
			if err := f.Client.Patch(ctx, &pod, poke); err != nil {
				t.Error(err)
			}
		}
	}
}

// controller returns the controller's pod.
func (f *fixture) controller(t *testing.T) *corev1.Pod {
	t.Helper()
	for _, pod := range f.kuryrPods(t.Context(), t) {
		if strings.HasPrefix(pod.Name, "kuryr-controller") && pod.DeletionTimestamp == nil {
			return &pod
		}
	}
	t.Fatal("there is no pod of Kuryr's controller")
	return nil
}

// kill ends a process of Kuryr's on a node with SIGKILL.
func (f *fixture) kill(t *testing.T, node, subcommand string) {
	t.Helper()
	if _, err := f.OnNode(t.Context(), node, "pkill", "-KILL", "-f", "^/kuryr "+subcommand); err != nil {
		t.Fatal(err)
	}
}

// remains is all that pods leave behind if something leaks.
type remains struct {
	NeutronPorts, KuryrPorts []string
	OnNode                   map[string]map[string]int
}

// inventory counts what is there. "netns" are the sandboxes' namespaces.
func (f *fixture) inventory(t *testing.T) (remains, error) {
	r := remains{OnNode: map[string]map[string]int{}}
	ports, err := f.KuryrPorts(t.Context())
	if err != nil {
		return r, err
	}
	for _, p := range ports {
		r.NeutronPorts = append(r.NeutronPorts, p.ID)
	}
	var list v1.KuryrPortList
	if err := f.Client.List(t.Context(), &list); err != nil {
		return r, err
	}
	for _, p := range list.Items {
		r.KuryrPorts = append(r.KuryrPorts, p.Name)
	}
	slices.Sort(r.NeutronPorts)
	slices.Sort(r.KuryrPorts)
	for _, node := range nodes {
		counts, err := f.OnNode(t.Context(), node, "sh", "-c", `
			echo "{\"veth\": $(ip -o link show type veth | grep -c ' tap'),"
			echo "\"ovs\": $(ovs-vsctl --bare --columns=name find interface external_ids:iface-id!='""' | grep -c tap),"
			echo "\"journal\": $(find /var/lib/kuryr -name '*.json' 2>/dev/null | wc -l),"
			echo "\"netns\": $(ls /run/netns | wc -l)}"`)
		if err != nil {
			return r, err
		}
		var n map[string]int
		if err := json.Unmarshal([]byte(counts), &n); err != nil {
			return r, fmt.Errorf("counting on %s: %w: %s", node, err, counts)
		}
		r.OnNode[node] = n
	}
	return r, nil
}

// nothingLeft waits until all is as it was before.
func (f *fixture) nothingLeft(t *testing.T, before remains) {
	t.Helper()
	eventually(t, func() error {
		now, err := f.inventory(t)
		if err != nil {
			return err
		}
		if got, want := fmt.Sprintf("%+v", now), fmt.Sprintf("%+v", before); got != want {
			return fmt.Errorf("left behind:\n got %s\nwant %s", got, want)
		}
		return nil
	})
}
