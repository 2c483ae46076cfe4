// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/nodetest/frame"
)

// wantsDual skips a test on a bed that has not both IPv4 and IPv6.
func wantsDual(t testing.TB) {
	t.Helper()
	if os.Getenv("KURYR_E2E") != "" && os.Getenv("KURYR_BED_FAMILIES") != "dual" {
		t.Skip("the test bed has IPv4 only: run `make e2e-dual`, which brings one up with KURYR_BED_FAMILIES=dual")
	}
}

// familyOf returns "IPv4" or "IPv6".
func familyOf(ip string) string {
	if strings.Contains(ip, ":") {
		return string(corev1.IPv6Protocol)
	}
	return string(corev1.IPv4Protocol)
}

// bothOf returns a pod's addresses by family. It has exactly one of each.
func bothOf(t testing.TB, pod *corev1.Pod) map[string]string {
	t.Helper()
	both := map[string]string{}
	for _, ip := range pod.Status.PodIPs {
		both[familyOf(ip.IP)] = ip.IP
	}
	if len(pod.Status.PodIPs) != 2 || len(both) != 2 || familyOf(pod.Status.PodIP) != "IPv4" {
		t.Fatalf("pod %s has addresses %v, want one of IPv4 and then one of IPv6", pod.Name, pod.Status.PodIPs)
	}
	return both
}

// nodeIPs returns the addresses of a node by family.
func (f *fixture) nodeIPs(t testing.TB, name string) map[string]string {
	t.Helper()
	var node corev1.Node
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
		t.Fatal(err)
	}
	both := map[string]string{}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			both[familyOf(a.Address)] = a.Address
		}
	}
	if len(both) != 2 {
		t.Fatalf("node %s has addresses %v, want one of each family", name, node.Status.Addresses)
	}
	return both
}

// A pod has the addresses of its Neutron port, one of each family, and no others.
func TestDualStackAddresses(t *testing.T) {
	wantsDual(t)
	f := onBed(t)
	for _, pod := range f.pods(t, "a", "b") {
		both := bothOf(t, pod)
		port := must(f.Port(t.Context(), must(f.KuryrPortOf(t.Context(), pod))(t).Name))(t)
		var fixed []string
		for _, ip := range port.FixedIPs {
			fixed = append(fixed, ip.IPAddress)
		}
		slices.Sort(fixed)
		if want := slices.Sorted(maps.Values(both)); !slices.Equal(fixed, want) {
			t.Errorf("port %s of pod %s has addresses %v, the pod %v", port.ID, pod.Name, fixed, want)
		}
		global := must(f.Exec(t.Context(), f.namespace, pod.Name, "sh", "-c",
			"ip -o addr show dev eth0 scope global | awk '{print $4}'; ip -6 route show default"))(t)
		wants := []string{both["IPv4"] + "/16", both["IPv6"] + "/64", "default via fd00:128::1 dev eth0"}
		lines := strings.Split(global, "\n")
		if len(lines) != len(wants) {
			t.Errorf("pod %s has %q, want only %q", pod.Name, lines, wants)
		}
		for _, want := range wants {
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), want) }) {
				t.Errorf("pod %s has %q, want %q there, too", pod.Name, lines, want)
			}
		}
	}
}

// Pods reach each other by both families, on one node and across nodes, and their nodes and the
// machine reach them.
func TestDualStackTraffic(t *testing.T) {
	wantsDual(t)
	f := onBed(t)
	pods := f.pods(t, "a", "b", "c") // n1, n2, n1
	for _, to := range pods {
		for family, ip := range bothOf(t, to) {
			for _, from := range pods {
				if from.Name == to.Name {
					continue
				}
				t.Run(family+" "+from.Name+"-"+to.Name, func(t *testing.T) {
					f.reaches(t, from, serviceAt(to, ip))
					f.transfers(t, from, serviceAt(to, ip))
					full := map[string]int{"IPv4": 1442 - 28, "IPv6": 1442 - 48}[family]
					f.inPod(from).answers(t, fmt.Sprintf("ping -c1 -W1 -s %d %s >/dev/null && echo whole", full, ip), 1, "whole")
				})
			}
			for name, from := range map[string]asker{"node n1": f.byNode("n1"), "node n2": f.byNode("n2"), "the machine": outside} {
				t.Run(family+" "+to.Name+" from "+name, func(t *testing.T) { from.answers(t, hostname(ip, 8080), 3, to.Name) })
			}
		}
	}
}

// A pod reaches what is outside its network by IPv6: nodes, the API server's own address, and the
// external network.
func TestDualStackOutside(t *testing.T) {
	wantsDual(t)
	f := onBed(t)
	api, external := os.Getenv("API_IP6"), os.Getenv("EXT_GATEWAY6")
	for _, pod := range f.pods(t, "a", "b") {
		from := f.inPod(pod)
		from.answers(t, "curl -skS -m3 --noproxy '*' https://["+api+"]:6443/readyz 2>&1; echo;", 3, "ok")
		from.answers(t, "ping -c1 -W1 "+external+" >/dev/null && echo there", 1, "there")
		for _, node := range nodes {
			from.answers(t, "ping -c1 -W1 "+f.nodeIPs(t, node)["IPv6"]+" >/dev/null && echo there", 1, "there")
		}
	}
}

// Cluster DNS answers at both of its addresses, with the addresses of both families.
func TestDualStackDNS(t *testing.T) {
	wantsDual(t)
	f := withServices(t)
	pods := f.servers(t, "web", 2)
	svc := f.service(t, "web", requireDual)
	f.service(t, "headless", requireDual, func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.Selector = corev1.ClusterIPNone, map[string]string{"app": "web"}
	})
	dns := must(f.Kube.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", getOptions))(t).Spec.ClusterIPs
	if len(dns) != 2 {
		t.Fatalf("cluster DNS has addresses %v, want one of each family", dns)
	}
	for _, node := range nodes {
		from := f.inPod(f.on(t, node, "client-"+node))
		for _, server := range dns {
			for i, record := range []string{"A", "AAAA"} {
				t.Run(fmt.Sprintf("%s %s by %s", node, record, familyOf(server)), func(t *testing.T) {
					ask := "dig +short +time=2 +tries=1 @%s " + record + " %s." + f.namespace + ".svc.cluster.local; echo;"
					from.answers(t, fmt.Sprintf(ask, server, "web"), 1, svc.Spec.ClusterIPs[i])
					from.answers(t, fmt.Sprintf(ask, server, "headless"), 1, bothOf(t, pods[0])[familyOf(svc.Spec.ClusterIPs[i])], bothOf(t, pods[1])[familyOf(svc.Spec.ClusterIPs[i])])
				})
			}
		}
	}
}

func requireDual(s *corev1.ServiceSpec) {
	s.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
}

func onlyIPv6(s *corev1.ServiceSpec) {
	s.IPFamilyPolicy, s.IPFamilies = new(corev1.IPFamilyPolicySingleStack), []corev1.IPFamily{corev1.IPv6Protocol}
}

// A Service with both families answers at both cluster IPs, one of IPv6 at its one, to pods and
// nodes; the endpoints see who asks.
func TestDualStackServices(t *testing.T) {
	wantsDual(t)
	f := withServices(t)
	pods := f.servers(t, "web", 2)
	clients := f.addresses(t)
	for name, families := range map[string]func(*corev1.ServiceSpec){"both": requireDual, "six": onlyIPv6} {
		began := time.Now()
		svc := f.service(t, name, families, func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "web"} })
		klb := f.realised(t, svc)
		t.Logf("the cloud has the Service of %v after %.1f s", svc.Spec.IPFamilies, time.Since(began).Seconds())
		if len(klb.Status.LoadBalancers) != len(svc.Spec.ClusterIPs) {
			t.Errorf("the Service with %v has %d load balancers", svc.Spec.ClusterIPs, len(klb.Status.LoadBalancers))
		}
		for _, vip := range svc.Spec.ClusterIPs {
			for who, from := range clients {
				t.Run(name+" "+familyOf(vip)+" from "+who, func(t *testing.T) {
					from.all(t, vip, pods)
					from.answers(t, send("hostname", vip, 80), 8, names(pods)...)
					f.sees(t, from.asker, vip, f.addressOf(t, who, familyOf(vip)))
				})
			}
		}
	}
}

// addressOf returns the address of one of addresses' clients in a family.
func (f *fixture) addressOf(t testing.TB, client, family string) string {
	t.Helper()
	if node, is := strings.CutPrefix(client, "node "); is {
		return f.nodeIPs(t, node)[family]
	}
	return bothOf(t, f.running(t, "client-"+strings.TrimPrefix(client, "pod on ")))[family]
}

// A Service that gets a second family answers at its new cluster IP, and one that loses it
// answers no longer there. The other family has no part in it.
func TestDualStackServiceChangesFamilies(t *testing.T) {
	wantsDual(t)
	f := withServices(t)
	pods := f.servers(t, "web", 2)
	from := f.inPod(f.on(t, "n1", "client"))
	svc := f.service(t, "web")
	from.all(t, svc.Spec.ClusterIP, pods)
	first := f.realised(t, svc).Status.LoadBalancers[0].ID
	f.becomes(t, svc, func(s *corev1.Service) { requireDual(&s.Spec) })
	if len(svc.Spec.ClusterIPs) != 2 {
		t.Fatalf("the Service has cluster IPs %v", svc.Spec.ClusterIPs)
	}
	second := svc.Spec.ClusterIPs[1]
	from.all(t, second, pods)
	f.becomes(t, svc, func(s *corev1.Service) {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
		s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[:1], s.Spec.IPFamilies[:1]
	})
	nobody(t, from, hostname(second, 80))
	from.all(t, svc.Spec.ClusterIP, pods)
	if now := f.realised(t, svc).Status.LoadBalancers; len(now) != 1 || now[0].ID != first {
		t.Errorf("the Service has load balancers %v, want only %s, which it had at first", now, first)
	}
}

// Nodes answer at node ports and host ports by both of their addresses.
func TestDualStackNodePorts(t *testing.T) {
	wantsDual(t)
	f := withServices(t)
	const hostPort = 54331
	hosted := f.hosted(t, "hosted", corev1.ContainerPort{HostPort: hostPort})
	pods := f.servers(t, "web", 2)
	svc := f.service(t, "web", requireDual, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	from := map[string]asker{"outside": outside, "a pod": f.inPod(f.on(t, "n2", "client")), "node n1": f.byNode("n1"), "node n2": f.byNode("n2")}
	f.realised(t, svc)
	for _, node := range nodes {
		for family, ip := range f.nodeIPs(t, node) {
			for who, asks := range from {
				t.Run(node+" "+family+" from "+who, func(t *testing.T) {
					asks.answers(t, hostname(ip, svc.Spec.Ports[0].NodePort), 20, names(pods)...)
					asks.answers(t, send("hostname", ip, int(svc.Spec.Ports[1].NodePort)), 8, names(pods)...)
					if node == "n1" {
						asks.answers(t, hostname(ip, hostPort), 4, hosted.Name)
					}
				})
			}
		}
	}
}

// A pod with NET_RAW and NET_ADMIN gets nowhere by IPv6 addresses that are not its own, as
// neighbour or as router.
func TestDualStackAttacks(t *testing.T) {
	wantsDual(t)
	f := onBed(t)
	pods := f.pods(t, "attacker", "elsewhere", "victim") // the first and the last are on one node
	evil, victim := f.sandbox(t, pods[0]), f.sandbox(t, pods[2])
	evil.ip, victim.ip = must(netip.ParseAddr(bothOf(t, pods[0])["IPv6"]))(t), must(netip.ParseAddr(bothOf(t, pods[2])["IPv6"]))(t)
	gateway := netip.MustParseAddr("fd00:128::1")
	eventually(t, func() error {
		_, err := f.inside(t.Context(), victim, "ping", "-c1", "-W2", gateway.String())
		return err
	})
	router := f.neighbour(t, victim, gateway.String())
	for from, want := range map[netip.Addr]bool{
		evil.ip: true, frame.LinkLocal(evil.mac): true, gateway: false, netip.MustParseAddr("fd00:128::bad"): false,
	} {
		header := append(from.AsSlice(), victim.ip.AsSlice()...)
		if got := f.hears(t, victim, header, evil, frame.Echo6(victim.mac, evil.mac, from, victim.ip)); got != want {
			t.Errorf("a neighbour hears a pod that sends from %s: %v, want %v", from, got, want)
		}
	}
	f.hears(t, victim, nil, evil,
		frame.Advertisement(victim.mac, evil.mac, gateway, victim.ip, gateway),
		frame.Advertisement(victim.mac, evil.mac, evil.ip, victim.ip, gateway),
		frame.RouterAdvertisement(evil.mac))
	if got := f.neighbour(t, victim, gateway.String()); got != router {
		t.Errorf("a neighbour takes %s for the gateway, whose MAC address is %s; the attacker's is %s", got, router, evil.mac)
	}
	out := must(f.inside(t.Context(), victim, "sh", "-c", "ip -6 address; ip -6 route"))(t)
	if strings.Contains(out, "2001:db8:bad") || strings.Count(out, "default") != 1 {
		t.Errorf("a neighbour believes a pod that says to be a router:\n%s", out)
	}
}
