// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nodeport_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// onHost is host port 8080, by TCP, of a pod with these addresses, at its port 80.
func onHost(pod, hostIP string, to ...string) nodeport.HostPort {
	h := nodeport.HostPort{Pod: "web/" + pod, Protocol: corev1.ProtocolTCP, Port: 8080, Target: 80}
	if hostIP != "" {
		h.Address = netip.MustParseAddr(hostIP)
	}
	for _, ip := range to {
		h.To = append(h.To, netip.MustParseAddr(ip))
	}
	return h
}

func with(h nodeport.HostPort, change func(*nodeport.HostPort)) nodeport.HostPort {
	change(&h)
	return h
}

func TestPlanHostPorts(t *testing.T) {
	late := func(h *nodeport.HostPort) { h.Since = time.Unix(1e9, 0) }
	at30080 := func(h *nodeport.HostPort) { h.Port = 30080 }
	nodePort := "0.0.0.0 TCP 30080 -> 10.96.0.10:80 (web/a)"
	for name, c := range map[string]struct {
		services []*corev1.Service
		hosts    []nodeport.HostPort
		want     []string
	}{
		"all addresses": {nil, []nodeport.HostPort{onHost("p", "", "10.0.0.1")}, []string{"0.0.0.0 TCP 8080 -> 10.0.0.1:80 (pod web/p) host"}},
		"dual stack": {
			nil, []nodeport.HostPort{onHost("p", "", "fd00::1", "10.0.0.1", "10.0.0.2")},
			[]string{"0.0.0.0 TCP 8080 -> 10.0.0.1:80 (pod web/p) host", ":: TCP 8080 -> [fd00::1]:80 (pod web/p) host"},
		},
		"all of one family": {nil, []nodeport.HostPort{onHost("p", "::", "fd00::1", "10.0.0.1")}, []string{":: TCP 8080 -> [fd00::1]:80 (pod web/p) host"}},
		"one number, three pods": {
			nil, []nodeport.HostPort{
				onHost("a", "127.0.0.1", "10.0.0.1"), onHost("b", "192.0.2.1", "10.0.0.2"),
				with(onHost("c", "192.0.2.1", "10.0.0.3"), func(h *nodeport.HostPort) { h.Protocol = corev1.ProtocolUDP }),
			},
			[]string{
				"127.0.0.1 TCP 8080 -> 10.0.0.1:80 (pod web/a) host", "192.0.2.1 TCP 8080 -> 10.0.0.2:80 (pod web/b) host",
				"192.0.2.1 UDP 8080 -> 10.0.0.3:80 (pod web/c) host",
			},
		},
		"an address of the other family": {nil, []nodeport.HostPort{onHost("p", "127.0.0.1", "fd00::1")}, nil},
		"no ports, no addresses": {nil, []nodeport.HostPort{
			onHost("a", ""), with(onHost("b", "", "10.0.0.1"), func(h *nodeport.HostPort) { h.Port = 0 }),
			with(onHost("c", "", "10.0.0.1"), func(h *nodeport.HostPort) { h.Target = 0 }),
		}, nil},
		"the older one has it": {
			nil, []nodeport.HostPort{with(onHost("a", "", "10.0.0.1"), late), onHost("b", "", "10.0.0.2")},
			[]string{
				"0.0.0.0 TCP 8080 -> 10.0.0.2:80 (pod web/b) host",
				"conflict 0.0.0.0 TCP 8080: pod web/b has it, not pod web/a",
			},
		},
		"one seen twice": {
			nil, []nodeport.HostPort{with(onHost("a", "", "10.0.0.1"), late), onHost("a", "", "10.0.0.1")},
			[]string{"0.0.0.0 TCP 8080 -> 10.0.0.1:80 (pod web/a) host"},
		},
		"a node port goes before": {
			[]*corev1.Service{svc("a")}, []nodeport.HostPort{
				with(onHost("all", "", "10.0.0.1"), at30080), with(onHost("one", "192.0.2.1", "10.0.0.2"), at30080),
				with(onHost("self", "127.0.0.1", "10.0.0.3"), at30080), with(onHost("six", "::", "fd00::1"), at30080),
			},
			[]string{
				nodePort, "127.0.0.1 TCP 30080 -> 10.0.0.3:80 (pod web/self) host", ":: TCP 30080 -> [fd00::1]:80 (pod web/six) host",
				"conflict 0.0.0.0 TCP 30080: web/a has it, not pod web/all", "conflict 192.0.2.1 TCP 30080: web/a has it, not pod web/one",
			},
		},
		"an external IP goes before": {
			[]*corev1.Service{svc("a", of(corev1.ServiceTypeClusterIP), external("192.0.2.1"), ports(corev1.ServicePort{Port: 8080}))},
			[]nodeport.HostPort{onHost("all", "", "10.0.0.1"), onHost("one", "192.0.2.1", "10.0.0.2")},
			[]string{
				"0.0.0.0 TCP 8080 -> 10.0.0.1:80 (pod web/all) host", "192.0.2.1 TCP 8080 -> 10.96.0.10:8080 (web/a)",
				"conflict 192.0.2.1 TCP 8080: web/a has it, not pod web/one",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, lines(nodeport.Plan(c.services, c.hosts, nodeport.APIServers{}))); d != "" {
				t.Errorf("Plan() (-want +got):\n%s", d)
			}
		})
	}
}

// Whatever order pods come in, the plan is the same, and nobody has a port at which
// a Service answers.
func TestPlanHostPortsInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	services := []*corev1.Service{
		svc("a", ports(corev1.ServicePort{Port: 80, NodePort: 8003})),
		svc("b", at("10.96.0.11"), external("192.0.2.1"), ports(corev1.ServicePort{Port: 8004})),
	}
	var hosts []nodeport.HostPort
	for i := range 60 {
		ip := []string{"", "0.0.0.0", "127.0.0.1", "192.0.2.1", "fd01::1"}[r.IntN(5)]
		h := onHost(fmt.Sprint("p", i), ip, fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("fd00::%d", i+1))
		h.Port, h.Since = uint16(8000+r.IntN(6)), time.Unix(int64(r.IntN(4)), 0)
		hosts = append(hosts, h)
	}
	plan := nodeport.Plan(services, hosts, nodeport.APIServers{})
	want := strings.Join(lines(plan), "\n")
	for f := range plan.Table {
		if f.Host && f.Port == 8003 && f.Address.Is4() && !f.Address.IsLoopback() || f.Host && f.Port == 8004 && f.Address == netip.MustParseAddr("192.0.2.1") {
			t.Errorf("a pod has %+v, which is a Service's", f)
		}
	}
	for range 50 {
		r.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		before := slices.Clone(hosts)
		if got := strings.Join(lines(nodeport.Plan(services, hosts, nodeport.APIServers{})), "\n"); got != want {
			t.Fatalf("Plan() in another order:\n%s\nwant\n%s", got, want)
		}
		if hosts[0].Pod != before[0].Pod || hosts[59].Pod != before[59].Pod {
			t.Fatal("Plan() has put its argument in order")
		}
	}
}
