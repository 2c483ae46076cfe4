// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// gcBed is an OpenStack with what clusters, people and other projects have made in it.
type gcBed struct {
	adoptBed
	here                                  *openstack.Backend
	pods, podSubnet, vips, public, tenant string
	objects                               []client.Object
	api                                   client.Client
}

// collections are where the bed looks for resources.
var collections = []string{
	"networking/v2.0/ports", "networking/v2.0/networks", "networking/v2.0/subnets", "networking/v2.0/routers",
	"networking/v2.0/security-groups", "networking/v2.0/floatingips", "load-balancer/v2.0/lbaas/loadbalancers",
}

func newGCBed(t *testing.T) *gcBed {
	b := &gcBed{adoptBed: adoptBed{t: t}}
	b.sim = openstacksim.Start(t, func(o *openstacksim.Options) {
		o.Quota = map[string]int{"port": -1, "network": -1, "subnet": -1, "router": -1, "floatingip": -1, "security_group": -1, "security_group_rule": -1}
	})
	b.tenant = b.sim.AddTenant("red")
	t.Setenv("OS_CLIENT_CONFIG_FILE", b.sim.CloudsFile(t))
	t.Setenv("OS_CLOUD", "kuryr")
	b.logIn()
	b.pods = b.make("network", map[string]any{"name": "pods"})
	b.podSubnet = b.make("subnet", map[string]any{"network_id": b.pods, "cidr": "10.1.0.0/16", "ip_version": 4})
	services := b.make("network", map[string]any{"name": "services"})
	b.vips = b.make("subnet", map[string]any{"network_id": services, "cidr": "10.2.0.0/16", "ip_version": 4})
	b.public = b.make("network", map[string]any{"name": "public", "router:external": true})
	b.make("subnet", map[string]any{"network_id": b.public, "cidr": "172.16.0.0/16", "ip_version": 4})
	b.here = b.backend("kuryr", "here")
	return b
}

func (b *gcBed) backend(cloud, cluster string) *openstack.Backend {
	b.t.Helper()
	backend, err := openstack.New(b.t.Context(), openstack.Config{ClusterID: cluster, Cloud: cloud, RequestsPerSecond: 100000, MaxConcurrent: 16, RequestTimeout: time.Minute})
	b.must(err)
	return backend
}

// plant has a cluster make n resources of each kind, for objects whose names begin so, and returns
// their IDs by kind.
func (b *gcBed) plant(of *openstack.Backend, name string, n int) map[string][]string {
	b.t.Helper()
	ctx, made := b.t.Context(), map[string][]string{}
	add := func(kind string, id string, err error) {
		b.t.Helper()
		b.must(err)
		made[kind] = append(made[kind], id)
	}
	ports, err := of.CreatePorts(ctx, sdn.Owner{Kind: sdn.KindPool, Name: name}, sdn.PortRequest{SubnetIDs: []string{b.podSubnet}}, n)
	b.must(err)
	for _, p := range ports {
		add("port", p.ID, nil)
	}
	for i := range n {
		service := sdn.Owner{Kind: sdn.KindLoadBalancer, Namespace: "default", Name: fmt.Sprintf("%s-%d", name, i)}
		namespace := sdn.Owner{Kind: sdn.KindNetwork, Namespace: fmt.Sprintf("%s-%d", name, i), Name: "network"}
		lb, err := of.CreateLoadBalancer(ctx, service, sdn.LoadBalancer{Name: service.Name, Provider: "ovn", VIP: v1.VIPAddress{SubnetID: b.vips}})
		add("load balancer", lb.ID, err)
		ip, err := of.CreateFloatingIP(ctx, service, sdn.FloatingIPRequest{NetworkID: b.public})
		add("floating IP", ip.ID, err)
		group, err := of.EnsureSecurityGroup(ctx, service, sdn.SecurityGroup{Name: "kuryr-" + service.Name})
		add("security group", group.ID, err)
		network, err := of.CreateNetwork(ctx, namespace, sdn.NetworkSpec{Name: "uid/" + namespace.Namespace})
		add("network", network.ID, err)
		subnet, err := of.CreateSubnet(ctx, namespace, sdn.SubnetSpec{NetworkID: network.ID, Name: "uid", IPVersion: 4, Prefix: netip.MustParsePrefix("10.3.0.0/24")})
		add("subnet", subnet.ID, err)
		router, err := of.CreateRouter(ctx, namespace, sdn.RouterSpec{Name: "uid/" + namespace.Namespace, Gateway: sdn.Gateway{NetworkID: b.public}})
		add("router", router.ID, err)
		b.must(of.AddRouterInterface(ctx, router.ID, subnet.ID))
	}
	return made
}

// named makes the objects that name what was planted.
func (b *gcBed) named(name string, made map[string][]string) {
	for i := range made["port"] {
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", name, i)}
		klb := &v1.KuryrLoadBalancer{ObjectMeta: meta}
		klb.Status.SecurityGroupID = made["security group"][i]
		kn := &v1.KuryrNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: meta.Name, Name: "network"}, Spec: v1.KuryrNetworkSpec{Mode: v1.NetworkNamespace, Router: &v1.NetworkRouter{}}}
		kn.Status.NetworkID, kn.Status.RouterID = made["network"][i], made["router"][i]
		b.objects = append(b.objects, klb, kn, &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: made["port"][i]}})
	}
}

// lookAlikes makes what looks like the cluster's, but is other people's: n of each kind, or more.
func (b *gcBed) lookAlikes(n int) {
	b.t.Helper()
	b.plant(b.backend("kuryr", "other"), "lost", n-n/2)
	b.plant(b.backend("kuryr", "here2"), "lost", n/2)
	mark := "kuryr.cluster=here kuryr.owner=kuryrnetwork/a/network"
	for i := range min(n, 20) { // also what has no mark, or has it in its name only
		for _, name := range []string{fmt.Sprintf("uid/lost-%d", i), mark} {
			id := b.make("network", map[string]any{"name": name})
			b.make("subnet", map[string]any{"name": name, "network_id": id, "cidr": "10.4.0.0/24", "ip_version": 4})
			b.make("router", map[string]any{"name": name})
			b.make("security-group", map[string]any{"name": name})
			b.make("port", map[string]any{"network_id": b.pods, "name": name, "device_owner": "compute:kuryr"})
		}
		b.make("port", map[string]any{"network_id": b.pods, "name": "available-port", "device_owner": "compute:kuryr"})
		b.make("port", map[string]any{"network_id": b.pods, "name": "available-port", "device_owner": "compute:kuryr", "description": "kuryr.cluster=here-too"})
		// Another project has the exact mark. The credential is an administrator's, and sees it.
		for _, kind := range []string{"network", "router", "security-group"} {
			b.make(kind, map[string]any{"name": "x", "project_id": b.tenant, "description": mark})
		}
		b.make("port", map[string]any{"network_id": b.pods, "project_id": b.tenant, "name": "available-port", "device_owner": "compute:kuryr", "description": "kuryr.cluster=here kuryr.owner=kuryrportpool/lost"})
	}
}

// ids returns the IDs of all resources in the cloud, as far as they are no port of something else.
func (b *gcBed) ids() map[string]bool {
	b.t.Helper()
	out := map[string]bool{}
	pages := slices.Clone(collections)
	for len(pages) > 0 {
		path := pages[0]
		pages = pages[1:]
		var list map[string][]struct {
			Rel, Href string // of a link to the next page

			ID     string
			Name   string
			Owner  string `json:"device_owner"`
			Status string `json:"provisioning_status"`
		}
		b.ask(http.MethodGet, "/"+path, nil, &list)
		for _, all := range list {
			for _, one := range all {
				if one.Rel == "next" {
					pages = append(pages, strings.TrimPrefix(one.Href, b.sim.URL()+"/"))
				}
				if one.ID != "" && one.Status != "DELETED" && (one.Owner == "" || one.Owner == "compute:kuryr") && !strings.HasPrefix(one.Name, "ovn-lb-vip-") {
					out[one.ID] = true
				}
			}
		}
	}
	return out
}

func flat(made map[string][]string) []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(made))...)))
}

// gone checks that exactly these resources are gone.
func (b *gcBed) gone(before map[string]bool, want []string) {
	b.t.Helper()
	after, lost := b.ids(), []string{}
	for id := range before {
		if !after[id] {
			lost = append(lost, id)
		}
	}
	slices.Sort(lost)
	if diff := cmp.Diff(want, lost); diff != "" {
		b.t.Errorf("resources that are gone (-want +got):\n%s", diff)
	}
}

// gc runs the command, and returns the IDs of the lines with an action, its output and its exit code.
func (b *gcBed) gc(deletes bool, action string) (ids []string, out string, code int) {
	b.t.Helper()
	run := b.command(b.api, gcFlags{deletes: deletes, grace: 10 * time.Millisecond})
	err := run.run(b.t.Context())
	text := run.out.(*bytes.Buffer).String()
	return idsAfter(text, action), text, exitCodeOf(err)
}

// command returns a run of the command with an API server.
func (b *gcBed) command(api client.Client, flags gcFlags) *gc {
	live := settings.NewLive(config.Config{Services: config.Services{SubnetIDs: []string{b.vips}}, Orphans: config.Orphans{Grace: metav1.Duration{Duration: flags.grace}}})
	all := controller.Inventories(api, controller.Options{Settings: live}.With(withTenants(b.here, func() []config.Project { return nil }, nil)))
	return &gc{client: api, all: all, out: &bytes.Buffer{}, flags: flags, patience: time.Second, pause: 10 * time.Millisecond}
}

// idsAfter returns the IDs of lines that begin so.
func idsAfter(text, action string) []string {
	ids := []string{}
	for line := range strings.Lines(text) {
		if rest, is := strings.CutPrefix(line, action+"  "); is {
			ids = append(ids, columnsOf(rest)[1])
		}
	}
	slices.Sort(ids)
	return ids
}

func columnsOf(line string) (out []string) {
	for column := range strings.SplitSeq(line, "   ") {
		if column = strings.TrimSpace(column); column != "" {
			out = append(out, column)
		}
	}
	return out
}

// All resources of each kind that no object names are found and deleted, and none of as many others of
// each kind. What is shown first is what is deleted, and an Event tells of each.
func TestGC(t *testing.T) {
	b := newGCBed(t)
	each := 500
	if testing.Short() {
		each = 25
	}
	step := func(what string) func() {
		began := time.Now()
		return func() { t.Logf("%d of each kind: %s: %s", each, what, time.Since(began).Round(time.Millisecond)) }
	}
	done := step("planted")
	planted := b.plant(b.here, "lost", each)
	kept := b.plant(b.here, "kept", 20)
	b.lookAlikes(each)
	usable := b.plant(b.here, "pool", 1) // the controllers can use the port
	adoptable := usable["port"]
	b.named("kept", kept)
	b.start(&v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1.KuryrPortPoolSpec{Key: v1.PoolKey{VIFType: "bridge"}}},
		&v1.KuryrCluster{ObjectMeta: metav1.ObjectMeta{Name: v1.ClusterName, UID: "c"}})
	before := b.ids()
	if n := len(before) - len(flat(planted)); n < 7*each {
		t.Errorf("%d resources are not left over, want %d or more", n, 7*each)
	}
	done()

	want := slices.Concat(flat(planted), flat(usable))
	want = slices.DeleteFunc(want, func(id string) bool {
		return slices.Contains(adoptable, id) || slices.Contains(planted["subnet"], id) || slices.Contains(usable["subnet"], id)
	})
	slices.Sort(want)
	done = step("shown")
	shown, out, code := b.gc(false, "would be deleted")
	done()
	if diff := cmp.Diff(want, shown); diff != "" || code != exitLeftOver {
		t.Errorf("exit code %d; shown (-want +got):\n%s", code, diff)
	}
	if ids := idsAfter(out, "would be adopted"); !slices.Equal(ids, adoptable) {
		t.Errorf("would be adopted: %v, want %v", ids, adoptable)
	}
	b.gone(before, []string{})

	done = step("deleted")
	deleted, out, code := b.gc(true, "deleted")
	done()
	if diff := cmp.Diff(shown, deleted); diff != "" || code != 0 {
		t.Errorf("exit code %d, %s; deleted (-shown +deleted):\n%s", code, out[strings.LastIndex(out, "Left over"):], diff)
	}
	all := slices.DeleteFunc(slices.Concat(flat(planted), flat(usable)), func(id string) bool { return slices.Contains(adoptable, id) })
	slices.Sort(all)
	b.gone(before, all)
	if diff := cmp.Diff(deleted, b.told()); diff != "" {
		t.Errorf("resources with an Event (-deleted +Event):\n%s", diff)
	}
	if again, out, code := b.gc(true, "deleted"); len(again) > 0 || code != 0 {
		t.Errorf("a second run has deleted %v, exit code %d\n%s", again, code, out)
	}
}

// start makes an API server with the bed's objects and more.
func (b *gcBed) start(more ...client.Object) {
	scheme, err := controller.Scheme()
	b.must(err)
	b.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(b.objects, more...)...).WithStatusSubresource().Build()
}

// told returns the resources of which an Event on the KuryrCluster says that they were deleted.
func (b *gcBed) told() []string {
	b.t.Helper()
	var list eventsv1.EventList
	b.must(b.api.List(b.t.Context(), &list))
	ids := []string{}
	for i := range list.Items {
		e := &list.Items[i]
		id := strings.TrimPrefix(e.Name, "orphan-")
		if e.Reason != v1.ReasonOrphanDeleted || e.Regarding.Kind != "KuryrCluster" || e.Regarding.UID != "c" || e.Namespace != "default" || !strings.Contains(e.Note, id) {
			b.t.Errorf("Event %+v", e)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// goneRun returns a run of --cluster-gone for the bed's cluster. answer is what the person types.
func (b *gcBed) goneRun(answer, yes string) (run *gc, out *bytes.Buffer) {
	run = b.command(noObjects{}, gcFlags{gone: "here", yes: yes, grace: 10 * time.Millisecond})
	run.in = strings.NewReader(answer)
	return run, run.out.(*bytes.Buffer)
}

// All that a cluster has left is deleted, whatever its state, and nothing of others. A network with
// somebody else's port stays with its router, and the reason is printed. A floating IP goes with its
// load balancer.
func TestClusterGone(t *testing.T) {
	b := newGCBed(t)
	planted := b.plant(b.here, "web", 20)
	lb, err := b.here.LoadBalancer(t.Context(), planted["load balancer"][0])
	b.must(err)
	router := b.make("router", map[string]any{"name": "people", "external_gateway_info": map[string]any{"network_id": b.public}})
	b.ask(http.MethodPut, "/networking/v2.0/routers/"+router+"/add_router_interface", map[string]any{"subnet_id": b.vips}, &struct{}{})
	b.must(b.here.Associate(t.Context(), planted["floating IP"][0], lb.VIPPortID))
	b.lookAlikes(10)
	server := b.make("port", map[string]any{"network_id": planted["network"][0], "device_owner": "compute:nova"})
	before := b.ids()

	for _, answer := range []string{"", "her\n", "yes\n"} {
		run, out := b.goneRun(answer, "")
		if err := run.run(t.Context()); exitCodeOf(err) != exitLeftOver {
			t.Errorf("with answer %q: %v, want exit code %d", answer, err, exitLeftOver)
		}
		for kind, ids := range planted {
			if kind != "subnet" && !strings.Contains(out.String(), ids[0]) {
				t.Errorf("the list does not have %s %s", kind, ids[0])
			}
		}
	}
	b.gone(before, []string{})

	run, out := b.goneRun("here\n", "")
	if err := run.run(t.Context()); exitCodeOf(err) != exitLeftOver {
		t.Errorf("run: %v, want exit code %d", err, exitLeftOver)
	}
	network, routed := planted["network"][0], planted["router"][0]
	for id, why := range map[string]string{network: server, routed: "in use"} {
		if lines := idsAfter(out.String(), "left"); !slices.Contains(lines, id) || !strings.Contains(out.String(), why) {
			t.Errorf("%s stays without the reason %q:\n%s", id, why, out)
		}
	}
	b.gone(before, slices.DeleteFunc(flat(planted), func(id string) bool { return id == network || id == routed || id == planted["subnet"][0] }))

	b.delete("networking/v2.0/ports/" + server)
	run, out = b.goneRun("", "here")
	if err := run.run(t.Context()); err != nil {
		t.Errorf("after the server has gone: %v\n%s", err, out)
	}
	b.gone(before, slices.Sorted(slices.Values(flat(planted))))
}

// A cluster whose controller makes or changes something between the comparisons is not gone.
func TestClusterGoneThatWorks(t *testing.T) {
	for what, does := range map[string]func(b *gcBed, port string) error{
		"a new network": func(b *gcBed, _ string) error {
			_, err := b.here.CreateNetwork(b.t.Context(), sdn.Owner{Kind: sdn.KindNetwork, Namespace: "a", Name: "network"}, sdn.NetworkSpec{Name: "uid/a"})
			return err
		},
		"a changed port": func(b *gcBed, port string) error {
			return b.here.UpdatePort(b.t.Context(), port, sdn.PortUpdate{Name: new("default/web")})
		},
	} {
		b := newGCBed(t)
		planted := b.plant(b.here, "web", 1)
		before := b.ids()
		run, _ := b.goneRun("", "here")
		run.out = writerFunc(func(text []byte) (int, error) {
			if strings.HasPrefix(string(text), "Compared once") {
				b.must(does(b, planted["port"][0]))
			}
			return len(text), nil
		})
		if err := run.run(t.Context()); exitCodeOf(err) != exitUnknown || !strings.Contains(err.Error(), "a controller of the cluster may still run") {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
		b.gone(before, []string{})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

func (b *gcBed) delete(path string) {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodDelete, b.sim.URL()+"/"+path, nil)
	r.Header.Set("X-Auth-Token", b.token)
	answer := httptest.NewRecorder()
	if b.sim.ServeHTTP(answer, r); answer.Code >= 300 {
		b.t.Fatalf("DELETE %s: %d %s", path, answer.Code, answer.Body)
	}
}

func exitCodeOf(err error) int {
	var e exit
	errors.As(err, &e)
	return e.code
}

// The cluster that the kubeconfig leads to is not gone if its API server answers.
func TestClusterGoneThatLives(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1":
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"namespaces","kind":"Namespace","namespaced":false,"verbs":["get"]}]}`))
		case "/api/v1/namespaces/kube-system":
			_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"the-uid"}}`))
		default:
			_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
		}
	}))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\n", api.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		gone, configured string
		lives            bool
	}{{"the-uid", "", true}, {"mine", "mine", true}, {"another", "mine", false}} {
		if err := doesNotLive(t.Context(), gcFlags{kubeconfig: kubeconfig, gone: c.gone}, c.configured); (err != nil) != c.lives {
			t.Errorf("cluster %s, configuration %q: %v", c.gone, c.configured, err)
		}
	}
	api.Close()
	if err := doesNotLive(t.Context(), gcFlags{kubeconfig: kubeconfig, gone: "the-uid"}, ""); err != nil {
		t.Errorf("after the cluster has gone: %v", err)
	}
}
