// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// manyPorts is a cloud with n ports, made anew for each list, as by a request.
type manyPorts struct {
	sdn.Ports
	n int
}

func (m manyPorts) ListPorts(context.Context) ([]sdn.PortSummary, error) {
	all := make([]sdn.PortSummary, m.n)
	for i := range all {
		all[i] = sdn.PortSummary{
			ID: fmt.Sprintf("00000000-0000-4000-8000-%012x", i), Name: sdn.FreePortName, Created: time.Unix(int64(i), 0), Revision: 3,
			Owner: sdn.Owner{Kind: sdn.KindPool, Name: fmt.Sprintf("pool-%d", i%1000)}, ProjectID: "0123456789abcdef0123456789abcdef",
			Host: fmt.Sprintf("node-%d", i%1000),
		}
	}
	return all, nil
}

// manyObjects is a cache with these KuryrPorts and nothing else.
type manyObjects struct {
	client.Client
	ports []v1.KuryrPort
}

func (m manyObjects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if of, is := list.(*v1.KuryrPortList); is {
		of.Items = m.ports
	}
	return nil
}

// Two comparisons of 50,000 ports, of which half are named by no object, take no more than 200 MiB at
// any time, beside the cache.
func TestMemoryOfACollection(t *testing.T) {
	const ports50k, limit = 50_000, 200 << 20
	objects := manyObjects{ports: make([]v1.KuryrPort, ports50k/2)}
	for i := range objects.ports {
		objects.ports[i].Name = fmt.Sprintf("00000000-0000-4000-8000-%012x", i)
	}
	live := settings.NewLive(settings.Settings{})
	r := &ports{PortOptions: PortOptions{Cloud: manyPorts{n: ports50k}, Settings: live, Shards: kube.Alone{}, Supply: idle{}, Visibility: idle{}}, client: objects}
	v := &Inventory{Settings: live, Shards: kube.Alone{}, comparison: r}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for pass := range 2 {
		found, err := v.look(t.Context())
		if err != nil || len(found.Unnamed) != ports50k/2 {
			t.Fatalf("look: %d unnamed, %v", len(found.Unnamed), err)
		}
		_, due, _ := v.remember(found)
		if want := pass * ports50k / 2; len(due) != want {
			t.Errorf("pass %d: %d are due, want %d", pass+1, len(due), want)
		}
	}
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(objects)
	// All that was allocated is more than was in use at any time.
	taken := after.TotalAlloc - before.TotalAlloc
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("allocated %d MiB in two comparisons; %d MiB stay", taken>>20, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>20)
	runtime.KeepAlive(v)
	if taken > limit {
		t.Errorf("two comparisons allocate %d MiB, want %d MiB at most", taken>>20, limit>>20)
	}
}
