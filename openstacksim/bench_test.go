// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// first is the ID in the answer to a create.
func first(t testing.TB, body string) string {
	t.Helper()
	var one map[string]struct{ ID string }
	if err := json.Unmarshal([]byte(body), &one); err != nil {
		t.Fatalf("reading %s: %v", body, err)
	}
	for _, row := range one {
		return row.ID
	}
	t.Fatalf("nothing in %s", body)
	return ""
}

// makeNetwork makes a network with one large subnet and returns its ID.
func makeNetwork(k *client, name, cidr string) string {
	k.t.Helper()
	id := first(k.t, k.must(201, http.MethodPost, "/networking/v2.0/networks", fmt.Sprintf(`{"network":{"name":%q}}`, name)))
	k.must(201, http.MethodPost, "/networking/v2.0/subnets", fmt.Sprintf(`{"subnet":{"network_id":%q,"cidr":%q,"ip_version":4}}`, id, cidr))
	return id
}

// unlimited is a cloud without quotas, and an administrator in it.
func unlimited(t testing.TB) (*openstacksim.Cloud, *client) {
	t.Helper()
	none := map[string]int{"port": -1, "network": -1, "subnet": -1, "security_group": -1, "security_group_rule": -1}
	c := openstacksim.Start(t, func(o *openstacksim.Options) { o.Quota, o.Keep = none, 100 })
	return c, as(t, c, "kuryr", "k8s")
}

// BenchmarkPorts makes one port with each call, by eight clients at once.
func BenchmarkPorts(b *testing.B) {
	_, k := unlimited(b)
	network := makeNetwork(k, "pods", "10.0.0.0/8")
	body := fmt.Sprintf(`{"port":{"network_id":%q,"name":"available-port","device_owner":"compute:kuryr","binding:host_id":"node1"}}`, network)
	var failed atomic.Int64
	b.SetParallelism(max(1, 8/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if a := k.fast(http.MethodPost, "/networking/v2.0/ports", body); a.status != http.StatusCreated {
				failed.Add(1)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ports/s")
	if n := failed.Load(); n > 0 {
		b.Errorf("%d of %d were refused", n, b.N)
	}
}

const (
	many     = 100_000
	netCount = 1000
)

// full makes many ports, by a few calls each: on a thousand networks, with a tag
// for each hundred and a device for each.
func full(t testing.TB) (*client, []string) {
	t.Helper()
	_, k := unlimited(t)
	ids := make([]string, netCount)
	for i := range ids {
		ids[i] = makeNetwork(k, fmt.Sprintf("net%d", i), fmt.Sprintf("10.%d.%d.0/24", i/250, i%250))
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < netCount; i += 4 {
				var ports []string
				for p := range many / netCount {
					ports = append(ports, fmt.Sprintf(`{"network_id":%q,"name":"available-port","device_owner":"compute:kuryr",`+
						`"binding:host_id":"node1","device_id":"device-%d-%d"}`, ids[i], i, p))
				}
				a := k.fast(http.MethodPost, "/networking/v2.0/ports", `{"ports":[`+strings.Join(ports, ",")+`]}`)
				if a.status != http.StatusCreated {
					t.Errorf("making %d ports: %v %d %.200s", len(ports), a.err, a.status, a.body)
					return
				}
				tag(k, a.body, fmt.Sprintf(`{"tags":["kuryr.cluster=c1","pool-%d"]}`, i))
			}
		})
	}
	wg.Wait()
	return k, ids
}

// tag gives the new ports their tags. Neutron of this release takes none as it
// makes them.
func tag(k *client, made, tags string) {
	var all struct{ Ports []struct{ ID string } }
	if err := json.Unmarshal([]byte(made), &all); err != nil {
		k.t.Errorf("reading the new ports: %v", err)
	}
	for _, p := range all.Ports {
		if a := k.fast(http.MethodPut, "/networking/v2.0/ports/"+p.ID+"/tags", tags); a.status != http.StatusOK {
			k.t.Errorf("tagging a port: %v %d %s", a.err, a.status, a.body)
		}
	}
}

// BenchmarkLists asks for some of 100,000 ports, over HTTP.
func BenchmarkLists(b *testing.B) {
	k, ids := full(b)
	for name, list := range map[string]struct {
		query string
		rows  int
	}{
		"tag":          {"tags=pool-7", many / netCount},
		"two tags":     {"tags=kuryr.cluster%3Dc1,pool-7", many / netCount},
		"network":      {"network_id=" + ids[7], many / netCount},
		"device":       {"device_id=device-7-7", 1},
		"page of 1000": {"limit=1000", 1000},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				a := k.fast(http.MethodGet, "/networking/v2.0/ports?"+list.query, "")
				if got := strings.Count(a.body, `"device_owner"`); a.status != http.StatusOK || got != list.rows {
					b.Fatalf("got %v %d with %d rows, want %d", a.err, a.status, got, list.rows)
				}
			}
		})
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			if a := k.fast(http.MethodGet, "/networking/v2.0/ports?fields=id&tags=kuryr.cluster%3Dc1", ""); strings.Count(a.body, `"id"`) != many {
				b.Fatalf("got %v %d with %d rows", a.err, a.status, strings.Count(a.body, `"id"`))
			}
		}
	})
}

// BenchmarkStart makes a cloud and logs in to it.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		as(b, openstacksim.Start(b), "admin", "admin")
	}
}
