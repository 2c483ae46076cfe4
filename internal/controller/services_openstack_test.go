// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// simBed is a serviceBed with a simulated OpenStack and the real backend, in place of the memory
// backend.
type simBed struct {
	*serviceBed
	api    *openstacksim.Cloud
	cloud  *openstackCloud
	file   string // clouds.yaml
	with   string // the API that serves load balancers; empty: Octavia
	zed    bool   // Octavia is that of Zed and 2023.1, not a later one
	around func(sdn.LoadBalancers) sdn.LoadBalancers

	backoff outcome.Backoff // fields without a value: as in production
	mend    time.Duration   // Options.Mend; 0: as in production
}

func newSimBed(t testing.TB, change ...func(*simBed)) *simBed {
	t.Helper()
	b := &simBed{serviceBed: newServiceBed(t), around: func(l sdn.LoadBalancers) sdn.LoadBalancers { return l }}
	for _, f := range change {
		f(b)
	}
	old := b.with == openstack.LBaaSv2
	b.api = openstacksim.Start(t, func(o *openstacksim.Options) {
		o.Hosts, o.Amphora, o.LBaaSv2, o.Keep = []string{node}, !old, old, 100_000
		if !b.zed {
			o.Release = "2025.1"
		}
	})
	b.file = b.api.CloudsFile(t)
	b.cloud = &openstackCloud{t: t, api: b.api, cluster: clusterID}
	b.cloud.logIn()
	net := b.cloud.make("network", map[string]any{"name": "pods"})
	b.cloud.subnet = b.cloud.make("subnet", map[string]any{"network_id": net, "cidr": "10.1.0.0/16", "ip_version": 4})
	net = b.cloud.make("network", map[string]any{"name": "services"})
	vips := b.cloud.make("subnet", map[string]any{"network_id": net, "cidr": apitest.ClusterIPs, "ip_version": 4, "gateway_ip": "10.0.255.254", "enable_dhcp": false})
	router := b.cloud.make("router", map[string]any{"name": "inside"})
	for _, subnet := range []string{vips, b.cloud.subnet} {
		if _, err := b.cloud.ask(http.MethodPut, "/networking/v2.0/routers/"+router+"/add_router_interface", map[string]any{"subnet_id": subnet}, &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	b.set(func(s *settings.Settings) {
		s.Pods.SubnetIDs, s.Services.SubnetIDs, s.Services.ExternalNetworkID = []string{b.cloud.subnet}, []string{vips}, ""
		s.Orphans.Interval.Duration, s.Orphans.Grace.Duration = time.Hour, time.Hour
	})
	return b
}

// slow makes the cloud as slow as these dials say.
func (b *simBed) slow(dials string) {
	b.t.Helper()
	set, err := dial.Parse([]byte(dials))
	if err != nil {
		b.t.Fatal(err)
	}
	b.api.SetDials(set)
}

// launch starts a controller with this limit of requests a second. Everything else is as in
// production.
func (b *simBed) launch(perSecond float64) {
	b.t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		b.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(serverOf(b.t), ctrl.Options{
		Scheme: scheme, Cache: kube.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"}, NewClient: through(b.wrote.funcs()),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	backend, err := openstack.New(ctx, openstack.Config{ClusterID: clusterID, Cloud: "kuryr", CloudsFile: b.file, RequestsPerSecond: perSecond, LoadBalancerAPI: b.with})
	if err != nil {
		b.t.Fatal(err)
	}
	o := controller.Options{
		Ports: backend, Visibility: backend, Capacity: backend, Hosts: backend, LoadBalancers: b.around(backend), FloatingIPs: backend, Subnets: backend,
		SecurityGroups: backend, Settings: b.settings, Backoff: b.backoff, Mend: b.mend,
	}
	if err := controller.Setup(ctx, mgr, o); err != nil {
		b.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the controller ended with: %v", err)
		}
	})
}

// atRest reports whether the status says that the cloud matches a Service, with these addresses
// behind each of width ports.
func (b *simBed) atRest(name string, width int, ips []string) bool {
	klb := b.balancerOf(name)
	if klb == nil || len(klb.Spec.Listeners) != width || len(klb.Status.Members) != width*len(ips) {
		return false
	}
	for _, l := range klb.Spec.Listeners {
		if !slices.EqualFunc(l.Members, inOrder(ips), func(m v1.MemberSpec, ip string) bool { return m.IP == ip }) {
			return false
		}
	}
	ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
	return ready != nil && ready.Status == "True" && ready.ObservedGeneration == klb.Generation &&
		meta.IsStatusConditionFalse(klb.Status.Conditions, v1.ConditionProgressing)
}

// inOrder sorts addresses as a plan does.
func inOrder(ips []string) []string {
	return slices.SortedFunc(slices.Values(ips), func(a, b string) int { return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b)) })
}

// asked returns the requests about load balancers since the last Reset, by verb and resource.
// changed are accepted changes. refused are changes that the cloud refused as busy. looked are
// reads.
func (b *simBed) asked() (changed, refused, looked map[string]int) {
	changed, refused, looked = map[string]int{}, map[string]int{}, map[string]int{}
	for _, c := range b.api.Counts() {
		what := c.Method + " " + c.Resource
		switch {
		case c.Service != "load-balancer":
		case c.Method == http.MethodGet:
			looked[what] += c.Calls
		default:
			if n := c.Outcomes["409"]; n > 0 {
				refused[what] += n
			}
			if n := c.Calls - c.Outcomes["409"]; n > 0 {
				changed[what] += n
			}
		}
	}
	return changed, refused, looked
}

func total(counts map[string]int) (n int) {
	for _, v := range counts {
		n += v
	}
	return n
}

// membersOf returns the members in Octavia, by the name of their Service and the port of the
// listener. It does not ask as the backend does.
func (b *simBed) membersOf() map[string]map[int32]string {
	b.t.Helper()
	owner, have := map[string]string{}, map[string]map[int32]string{}
	for _, lb := range b.rows("loadbalancer") {
		owner[lb["id"].(string)] = strings.TrimPrefix(lb["name"].(string), "default/")
	}
	for _, l := range b.rows("listener") {
		var list map[string][]map[string]any
		if _, err := b.cloud.ask(http.MethodGet, fmt.Sprintf("/load-balancer/v2.0/lbaas/pools/%v/members", l["default_pool_id"]), nil, &list); err != nil {
			b.t.Fatal(err)
		}
		var ips []string
		for _, m := range list["members"] {
			ips = append(ips, m["address"].(string))
		}
		slices.Sort(ips)
		name := owner[l["loadbalancers"].([]any)[0].(map[string]any)["id"].(string)]
		if have[name] == nil {
			have[name] = map[int32]string{}
		}
		have[name][int32(l["protocol_port"].(float64))] = strings.Join(ips, " ")
	}
	return have
}

func (b *simBed) rows(kind string) []map[string]any {
	b.t.Helper()
	rows, err := b.cloud.list(kind)
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

// by makes a Service be served by a provider.
func by(provider string) func(*corev1.Service) {
	return func(svc *corev1.Service) {
		svc.Annotations = map[string]string{"openstack.org/kuryr-provider": provider}
	}
}

// TestRequestsOfAService counts the writing requests of a Service with three ports and fifty
// endpoints. One request creates it, and one per pool changes its endpoints, whatever their number.
//
// OVN's driver works at every member of a batch before it answers, including unchanged ones. So a
// hundred members are in one request, and a few changes are separate requests. That an amphora is
// busy then is found out once.
func TestRequestsOfAService(t *testing.T) {
	for provider, most := range map[string]map[int]int{ // number of endpoints → number of requests; 0: creation
		"amphora": {0: 1, 1: 3, 10: 3, 50: 3},
		"ovn":     {0: 2, 1: 6, 10: 3, 50: 3},
	} {
		t.Run(provider, func(t *testing.T) {
			b := newSimBed(t)
			if provider == "amphora" {
				b.slow("{balancers: [{delay: 20ms}]}")
			}
			b.launch(1000)
			b.eventually("default/kubernetes is in the cloud", func() bool { return b.atRest("kubernetes", 1, nil) })
			busy := 0 // refusals of a busy load balancer, which show that it is busy
			count := func(what string, endpoints int) {
				changed, refused, looked := b.asked()
				if busy += total(refused); busy > 1 {
					t.Errorf("%s: refused %v, want no more than one in all", what, refused)
				}
				t.Logf("%s: %v; refused %v, looked %v", what, changed, refused, looked)
				if n := total(changed); n == 0 || n > most[endpoints] {
					t.Errorf("%s: %d requests, want at most %d", what, n, most[endpoints])
				}
			}
			b.api.Reset()
			ips := addresses(0, 50)
			b.service("web", ports(3), by(provider))
			s := b.sliceWith(3, "web", ips)
			b.eventuallyIn(time.Minute, "it is in the cloud", func() bool { return b.atRest("web", 3, ips) })
			count("to make it", 0)
			for _, n := range []int{1, 10, 50} {
				b.api.Reset()
				copy(ips, addresses(100*n, n))
				s.Endpoints = endpointsAt(ips...)
				if err := b.client.Update(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				b.eventuallyIn(time.Minute, "the members are others", func() bool { return b.atRest("web", 3, ips) })
				count(fmt.Sprintf("to change %d of its endpoints", n), n)
				if diff := cmp.Diff(wanted(3, ips), b.membersOf()["web"]); diff != "" {
					t.Errorf("members (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestFloatingIPWaitsForLoadBalancer: Neutron is asked for the floating IP of a VIP once Octavia has
// created the load balancer. OVN's provider (3.0.0) learns of a floating IP by one event. It looks
// for its load balancer in OVN for ten seconds, and then forgets the floating IP.
func TestFloatingIPWaitsForLoadBalancer(t *testing.T) {
	b := newSimBed(t)
	external := b.outside()
	b.set(func(s *settings.Settings) { s.Services.ExternalNetworkID = external })
	b.slow("{balancers: [{kind: loadbalancer, action: create, outcome: STUCK}]}")
	b.launch(1000)
	svc := b.service("web", by("ovn"), balanced)
	b.slice("web", "web", "10.1.0.5")
	var id string
	b.eventually("the status names the load balancer", func() bool {
		klb := b.balancerOf("web")
		if klb == nil || len(klb.Status.LoadBalancers) == 0 {
			return false
		}
		id = klb.Status.LoadBalancers[0].ID
		return id != ""
	})
	b.never("it has a floating IP while it is PENDING_CREATE", func() bool { return len(b.rows("floatingip")) > 0 || b.ingress(svc) != "" })
	if err := b.api.SetProvisioning("loadbalancers", id, "ACTIVE"); err != nil {
		t.Fatal(err)
	}
	b.eventuallyIn(time.Minute, "its floating IP shows", func() bool { return strings.HasPrefix(b.ingress(svc), "203.0.113.") })
	if all := b.rows("floatingip"); len(all) != 1 || all[0]["port_id"] != b.balancerOf("web").Status.LoadBalancers[0].PortID {
		t.Errorf("the cloud has floating IPs %v, want one at the VIP's port", all)
	}
}

// TestListenerInErrorOnAmphora: the deletion of the listener's pool makes the load balancer busy,
// and the listener follows. Both are one try to get out of ERROR, without the pause between two
// tries.
func TestListenerInErrorOnAmphora(t *testing.T) {
	alone(t)
	for name, zed := range map[string]bool{"Zed": true, "later": false} {
		t.Run(name, func(t *testing.T) { listenerInErrorOnAmphora(t, zed) })
	}
}

func listenerInErrorOnAmphora(t *testing.T, zed bool) {
	b := newSimBed(t, func(b *simBed) { b.zed = zed })
	b.slow("{balancers: [{kind: listener, action: update, times: 1, outcome: ERROR}, {delay: 20ms}]}")
	b.launch(1000)
	ips := addresses(0, 2)
	svc := b.service("web", ports(3), by("amphora"))
	b.sliceWith(3, "web", ips)
	b.eventuallyIn(time.Minute, "it is in the cloud", func() bool { return b.atRest("web", 3, ips) })
	mends := counted(t, "kuryr_loadbalancer_mends_total")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"openstack.org/kuryr-timeout-client-data":"77000"}}}`))
	if err := b.client.Patch(t.Context(), svc, patch); err != nil {
		t.Fatal(err)
	}
	b.eventuallyIn(25*time.Second, "it is mended before there is another try", func() bool {
		all := b.rows("listener")
		return b.atRest("web", 3, ips) && len(all) > 2 && !slices.ContainsFunc(all, func(l map[string]any) bool {
			return l["provisioning_status"] != "ACTIVE" || strings.HasPrefix(l["name"].(string), "default/web:") && l["timeout_client_data"] != 77000.
		})
	})
	if n := counted(t, "kuryr_loadbalancer_mends_total") - mends; n != 1 {
		t.Errorf("%v tries to mend it, want 1", n)
	}
}

// addresses returns n addresses of pods, from the i-th on.
func addresses(i, n int) (ips []string) {
	for ; n > 0; i, n = i+1, n-1 {
		ips = append(ips, fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250))
	}
	return ips
}
