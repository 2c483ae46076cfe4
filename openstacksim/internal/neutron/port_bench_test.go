// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
)

const many = 100_000

// crowd is a service with many ports on 100 networks. Each device has ten ports. One port in a
// thousand has the tag "rare".
var crowd = sync.OnceValue(func() *filled { return fill(many) })

type filled struct {
	*desk
	nets, subnets []string
	bytes         uint64 // of heap, for everything
}

// fill makes ports as Kuryr does, by bulk requests, and tags them.
func fill(n int) *filled {
	t := &nobody{}
	before := heap()
	f := &filled{desk: newDesk(t)}
	for i := range 100 {
		net := text(f.make(member, "network", object{"name": "n"}), "id")
		f.nets = append(f.nets, net)
		f.subnets = append(f.subnets, f.subnet(net, fmt.Sprintf("10.%d.0.0/16", i), nil))
	}
	const batch = 100
	for i := 0; i < n; i += batch {
		ports := list{}
		for j := range batch {
			ports = append(ports, f.port(i+j))
		}
		status, answer := f.ask(admin, http.MethodPost, "/ports", object{"ports": ports})
		if status != http.StatusCreated {
			panic(fmt.Sprint(status, answer))
		}
		for j, p := range answer["ports"].(list) {
			tags := list{"kuryr.cluster=c", "kuryr.owner=o"}
			if (i+j)%1000 == 0 {
				tags = append(tags, "rare")
			}
			f.ask(admin, http.MethodPut, "/ports/"+text(p.(object), "id")+"/tags", object{"tags": tags})
		}
	}
	f.bytes = heap() - before
	return f
}

func (f *filled) port(i int) object {
	return object{
		"network_id": f.nets[i%len(f.nets)], "fixed_ips": list{object{"subnet_id": f.subnets[i%len(f.subnets)]}},
		"name": "available-port", "device_owner": "compute:kuryr", "device_id": fmt.Sprintf("device-%d", i/10),
		"binding:host_id": "n1", "admin_state_up": true,
	}
}

// nobody is a testing.TB for data that is made outside of a test.
type nobody struct{ testing.TB }

func (*nobody) Helper()           {}
func (*nobody) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
func (*nobody) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestPortsFitIntoMemory: 100,000 ports must take 400 MiB at most. Runs took about 105.
func TestPortsFitIntoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it makes 100,000 ports, and runs without -short ('make long')")
	}
	const limit = 400 << 20
	got := crowd().bytes
	t.Logf("%d ports take %d MiB", many, got>>20)
	if got > limit {
		t.Errorf("%d ports take %d MiB, want %d at most", many, got>>20, limit>>20)
	}
}

func BenchmarkPostPort(b *testing.B) {
	f := fill(0)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if status, answer := f.raw(admin, http.MethodPost, "/ports", object{"port": f.port(i)}); status != http.StatusCreated {
			b.Fatalf("POST %d: %d %s", i, status, answer)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ports/s")
}

// BenchmarkPostPortAmongMany makes ports while many exist already.
func BenchmarkPostPortAmongMany(b *testing.B) {
	f := crowd()
	b.ReportAllocs()
	i := many
	for b.Loop() {
		i++
		status, answer := f.ask(admin, http.MethodPost, "/ports", object{"port": f.port(i)})
		if status != http.StatusCreated {
			b.Fatalf("POST %d: %d %v", i, status, answer)
		}
		f.ask(admin, http.MethodDelete, "/ports/"+text(answer["port"].(object), "id"), nil)
	}
}

func BenchmarkListPorts(b *testing.B) {
	f := crowd()
	first := func() string {
		_, answer := f.ask(admin, http.MethodGet, "/ports?limit=1&fields=id", nil)
		return text(answer["ports"].(list)[0].(object), "id")
	}
	for name, query := range map[string]string{
		"tag":            "tags=rare",
		"device":         "device_id=device-77",
		"network":        "fields=id&network_id=" + f.nets[3],
		"network, whole": "network_id=" + f.nets[3],
		"page":           "limit=100",
		"owner and page": "device_owner=compute:kuryr&limit=100&marker=" + first(),
		"tags and page":  "tags=kuryr.cluster%3Dc&limit=1000",
		"address":        "fixed_ips=ip_address%3D10.3.0.7",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if status, answer := f.raw(admin, http.MethodGet, "/ports?"+query, nil); status != http.StatusOK {
					b.Fatalf("GET ?%s: %d %s", query, status, answer)
				}
			}
		})
	}
}
