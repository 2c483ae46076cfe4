// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// addresses are where a Service is asked from, with the address that an endpoint is
// to see of each.
func (f *fixture) addresses(t testing.TB) map[string]struct {
	asker
	ip string
} {
	t.Helper()
	type from = struct {
		asker
		ip string
	}
	all := map[string]from{}
	for _, node := range nodes {
		pod := f.on(t, node, "client-"+node)
		all["pod on "+node] = from{f.inPod(pod), pod.Status.PodIP}
		all["node "+node] = from{f.byNode(node), pod.Status.HostIP}
	}
	return all
}

// A Service with one port number for TCP and UDP answers at its cluster IP, to pods
// and nodes, with all of its pods; these see who asks.
func TestServiceFromPodsAndNodes(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 2)
	if a, b := pods[0].Spec.NodeName, pods[1].Spec.NodeName; a == b {
		t.Fatalf("both pods are on %s: this would prove little", a)
	}
	clients := f.addresses(t)
	began := time.Now()
	svc := f.service(t, "web")
	f.realised(t, svc)
	t.Logf("the cloud has the Service after %.1f s", time.Since(began).Seconds())
	f.members(t, svc, "TCP:80", at(pods, 8080))
	f.members(t, svc, "UDP:80", at(pods, 8081))
	vip := svc.Spec.ClusterIP
	for name, from := range clients {
		t.Run(name, func(t *testing.T) {
			from.all(t, vip, pods)
			from.answers(t, send("hostname", vip, 80), 8, names(pods)...)
			f.sees(t, from.asker, vip, from.ip)
		})
	}
}

// sees checks that endpoints see the address of who asks, by TCP and by UDP.
func (f *fixture) sees(t testing.TB, from asker, address, want string) {
	t.Helper()
	for _, script := range []string{get("http://" + inURL(address) + "/clientip"), send("clientip", address, 80)} {
		eventually(t, func() error {
			out, err := from(t.Context(), script)
			if err != nil {
				return err
			}
			got, _, err := net.SplitHostPort(strings.TrimSpace(out))
			if err != nil || got != want {
				return fmt.Errorf("%q: the endpoint sees %q, want %s", script, out, want)
			}
			return nil
		})
	}
}

// A pod reaches itself by its own Service.
func TestServiceHairpin(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 1)
	vip := f.service(t, "web").Spec.ClusterIP
	self := f.inPod(pods[0])
	self.all(t, vip, pods)
	self.answers(t, send("hostname", vip, 80), 1, names(pods)...)
}

// A megabyte arrives whole through a Service.
func TestServiceTransfers(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 1)
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) {
		s.Ports = []corev1.ServicePort{{Port: 8090}}
	})
	f.realised(t, svc)
	for _, node := range nodes {
		through := f.on(t, node, "client-"+node)
		f.transfers(t, through, serviceAt(pods[0], svc.Spec.ClusterIP))
	}
}

// serviceAt is a pod whose address, for who asks, is that of its Service.
func serviceAt(pod *corev1.Pod, ip string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status.PodIP = ip
	return pod
}

// A Service of type LoadBalancer answers at its floating IP from outside, again and
// again, and at its cluster IP inside. The floating IP goes with it.
func TestServiceFloatingIP(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 2)
	inside := f.on(t, "n1", "inside")
	began := time.Now()
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	public := f.ingress(t, svc)
	t.Logf("the Service has %s after %.1f s", public, time.Since(began).Seconds())
	asker(outside).all(t, public, pods)
	asker(outside).answers(t, send("hostname", public, 80), 8, names(pods)...)
	f.inPod(inside).all(t, svc.Spec.ClusterIP, pods)
	f.sees(t, outside, public, machineIP(t, public))
	for range 9 { // it stays so
		time.Sleep(time.Second)
		out, err := outside(t.Context(), get("http://"+public+"/hostname"))
		if err != nil || out != pods[0].Name && out != pods[1].Name {
			t.Errorf("%s answers %q (%v), want one of %q", public, out, err, names(pods))
		}
	}
}

// machineIP is the address from which the machine reaches a floating IP.
func machineIP(t testing.TB, public string) string {
	t.Helper()
	conn, err := net.Dial("udp", net.JoinHostPort(public, "9")) // sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.LocalAddr().(*net.UDPAddr).IP.String()
}

// ingress waits until a Service shows one address to the outside, and returns it.
func (f *fixture) ingress(t testing.TB, svc *corev1.Service) string {
	t.Helper()
	var ip string
	f.shows(t, svc, func(ingress []corev1.LoadBalancerIngress) error {
		if len(ingress) != 1 || ingress[0].IP == "" {
			return fmt.Errorf("Service %s shows %+v, want one address", svc.Name, ingress)
		}
		ip = ingress[0].IP
		return nil
	})
	return ip
}

// A pod reaches the API server by its cluster IP and by its name, with the
// certificate checked, and other Services by theirs; DNS itself is a Service. What is on
// a node's own network reaches the API server by its cluster IP, too.
func TestClusterDNS(t *testing.T) {
	f := withServices(t)
	pods := f.servers(t, "web", 1)
	svc := f.service(t, "web")
	api := must(f.Kube.CoreV1().Services("default").Get(t.Context(), "kubernetes", getOptions))(t).Spec.ClusterIP
	for _, node := range nodes {
		t.Run(node, func(t *testing.T) {
			from := f.inPod(f.on(t, node, "client-"+node))
			readyz := "curl -sS -m5 --noproxy '*' --cacert /var/run/secrets/kubernetes.io/serviceaccount/ca.crt https://%s/readyz 2>&1; echo;"
			from.answers(t, fmt.Sprintf(readyz, api), 3, "ok")
			from.answers(t, fmt.Sprintf(readyz, "kubernetes.default.svc"), 3, "ok")
			f.byNode(node).answers(t, "curl -skS -m5 --noproxy '*' https://"+api+"/readyz 2>&1; echo;", 3, "ok")
			from.answers(t, "getent hosts web | cut -d' ' -f1; echo;", 1, svc.Spec.ClusterIP)
			from.answers(t, "dig +short +tcp web."+f.namespace+".svc.cluster.local; echo;", 1, svc.Spec.ClusterIP)
			for _, name := range []string{"web", "web." + f.namespace, "web." + f.namespace + ".svc.cluster.local"} {
				from.all(t, name, pods)
			}
		})
	}
}

// With affinity a client has one endpoint, whatever its port, and without it all.
// Where the provider keeps affinity to itself, the test tells OVN instead of it.
func TestServiceAffinity(t *testing.T) {
	long(t)
	f := withServices(t)
	pods := f.servers(t, "web", 3)
	client := f.inPod(f.on(t, "n1", "client"))
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP })
	f.realised(t, svc)
	f.persists(t, svc, "SOURCE_IP")
	told := f.tellOVN(t, svc)
	eventually(t, func() error {
		out, err := client(t.Context(), "for i in $(seq 30); do "+get("http://"+svc.Spec.ClusterIP+"/hostname")+" done | grep . | sort -u")
		if err == nil && !slices.Contains(names(pods), out) {
			err = fmt.Errorf("with affinity these answer: %q, want one of %q", out, names(pods))
		}
		return err
	})
	f.becomes(t, svc, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityNone })
	f.persists(t, svc, "")
	if !told {
		t.Skip("SKIPPED: the rest: this OVN provider does not tell OVN of affinity of TCP; told so by the test, OVN keeps it")
	}
	client.all(t, svc.Spec.ClusterIP, pods)
}

// persists waits until all pools of a Service have that kind of affinity in Octavia.
func (f *fixture) persists(t testing.TB, svc *corev1.Service, want string) {
	t.Helper()
	eventually(t, func() error {
		klb := f.realised(t, svc)
		for _, p := range klb.Status.Pools {
			pool, err := pools.Get(t.Context(), f.Octavia, p.ID).Extract()
			if err == nil && pool.Persistence.Type != want {
				err = fmt.Errorf("pool %s has affinity %q, want %q", p.Name, pool.Persistence.Type, want)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// tellOVN says whether OVN knows of a Service's affinity by the provider. If it does
// not, OVN is told.
func (f *fixture) tellOVN(t testing.TB, svc *corev1.Service) bool {
	t.Helper()
	lb := f.realised(t, svc).Status.LoadBalancers[0].ID
	rows := strings.Fields(must(outside(t.Context(), "ovn-nbctl --bare --columns=_uuid find load_balancer name="+lb))(t))
	if len(rows) == 0 {
		t.Fatalf("OVN has no load balancer %s", lb)
	}
	told := true
	for _, row := range rows {
		if options := must(outside(t.Context(), "ovn-nbctl get load_balancer "+row+" options"))(t); !strings.Contains(options, "affinity_timeout") {
			told = false
			must(outside(t.Context(), "ovn-nbctl set load_balancer "+row+" options:affinity_timeout=360"))(t)
		}
	}
	return told
}

// An SCTP port is a listener of the cloud's, and answers where the kernel has SCTP.
func TestServiceSCTP(t *testing.T) {
	f := withServices(t)
	withSCTP := sctp()
	pods := f.servers(t, "web", 2, func(s *corev1.PodSpec) {
		if withSCTP {
			s.Containers[0].Args = append(s.Containers[0].Args, "--sctp-port=8082")
		}
	})
	svc := f.service(t, "web", func(s *corev1.ServiceSpec) {
		s.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolSCTP, Port: 90, TargetPort: intstr.FromInt32(8082)}}
	})
	f.realised(t, svc)
	f.members(t, svc, "SCTP:90", at(pods, 8082))
	if !withSCTP {
		t.Skip("SKIPPED: the rest, traffic by SCTP: this kernel has none (modprobe sctp)")
	}
	client := f.inPod(f.on(t, "n1", "client"))
	client.answers(t, "/agnhost connect --protocol=sctp --timeout=3s "+svc.Spec.ClusterIP+":90 && echo connected;", 4, "connected")
}

// sctp says whether the kernel has SCTP.
func sctp() bool {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 132) // IPPROTO_SCTP
	if err == nil {
		_ = syscall.Close(fd)
	}
	return err == nil
}
