// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/openstacksim"
)

const recordHeader = `# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
#
# What the controller of one commit, which the file is named for, has left at rest: its
# configuration, the objects by their keys in etcd, the requests that made the cloud, in
# their order, and what there was in it in the end. TestRecordUpgrade has written it, at
# that commit; TestUpgradeChangesNothing reads it. It is not to be edited.
`

// TestRecordUpgrade writes a recording of the controller that it is built with into the
// file that KURYR_RECORD_UPGRADE names:
//
//	KURYR_RECORD_UPGRADE=b9946cc.txtar go test -run TestRecordUpgrade ./internal/controller/
//
// It lets a cluster live for a while (see recorder.live) and waits until no client writes.
func TestRecordUpgrade(t *testing.T) {
	file := os.Getenv("KURYR_RECORD_UPGRADE")
	if file == "" {
		t.Skip("SKIPPED: it writes the file that KURYR_RECORD_UPGRADE names")
	}
	apitest.Need(t)
	r := &recorder{bed: idleBed(t)}
	r.services = &serviceBed{bed: r.bed}
	t.Cleanup(r.services.clear)
	r.simulated = newSimulated(t, func(c *openstacksim.Cloud) openstackAPI {
		r.notes = &notes{Cloud: c}
		return r.notes
	})
	leaveAlone(t, r.client)
	r.furnish()
	r.begin()
	r.live()
	r.rest()
	r.stop()
	if err := os.WriteFile(file, txtar.Format(r.archive()), 0o644); err != nil { //nolint:gosec // it is read like a source file
		t.Fatal(err)
	}
}

// recorder is a cluster and a cloud that are recorded.
type recorder struct {
	*bed
	*simulated
	services *serviceBed
	notes    *notes

	configuration []byte
}

// notes is a cloud that records the requests that have changed it.
type notes struct {
	*openstacksim.Cloud
	mu  sync.Mutex
	all []string
}

// ServeHTTP implements http.Handler. Writing requests run one after the other, in the order of the
// record.
func (n *notes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || strings.HasPrefix(r.URL.Path, "/identity/") {
		n.Cloud.ServeHTTP(w, r)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	status := &statusWriter{ResponseWriter: w}
	n.Cloud.ServeHTTP(status, r)
	if status.code < 300 {
		n.all = append(n.all, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+strings.TrimSpace(string(body))))
	}
}

func (n *notes) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// statusWriter records the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	code int
}

func (s *statusWriter) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// furnish creates what pods and Services need, and a virtual machine.
func (r *recorder) furnish() {
	r.bed.t.Helper()
	pods := r.make("network", map[string]any{"name": "pods"})
	subnet := r.make("subnet", map[string]any{"network_id": pods, "cidr": "10.1.0.0/16", "ip_version": 4})
	group := r.make("security-group", map[string]any{"name": "pods"})
	services := r.make("network", map[string]any{"name": "services"})
	vips := r.make("subnet", map[string]any{"network_id": services, "cidr": apitest.ClusterIPs, "ip_version": 4, "gateway_ip": "10.0.255.254", "enable_dhcp": false})
	outside := r.make("network", map[string]any{"name": "outside", "router:external": true})
	r.make("subnet", map[string]any{"network_id": outside, "cidr": "203.0.113.0/24", "ip_version": 4, "enable_dhcp": false})
	router := r.make("router", map[string]any{"name": "out", "external_gateway_info": map[string]any{"network_id": outside}})
	for _, s := range []string{vips, subnet} {
		r.ask(http.MethodPut, "/networking/v2.0/routers/"+router+"/add_router_interface", map[string]any{"subnet_id": s}, &struct{}{})
	}
	machines := r.make("network", map[string]any{"name": "machines"})
	own := r.make("subnet", map[string]any{"network_id": machines, "cidr": "192.0.2.0/24", "ip_version": 4})
	parent := r.make("port", map[string]any{
		"network_id": machines, "device_owner": "compute:nova", "binding:host_id": node,
		"fixed_ips": []any{map[string]any{"subnet_id": own, "ip_address": machineAddr}},
	})
	r.make("trunk", map[string]any{"port_id": parent})
	r.make("port", map[string]any{"network_id": pods, "name": "of somebody", "description": "kuryr.cluster=other kuryr.owner=kuryrportpool/theirs"})
	r.make("floatingip", map[string]any{"floating_network_id": outside, "description": "of somebody"})
	r.configuration = fmt.Appendf(nil, `apiVersion: kuryr.openstack.org/v1alpha1
kind: KuryrConfiguration
clusterID: %s
pods:
  subnetIDs: [%s]
  securityGroupIDs: [%s]
nodes:
- nodeSelector: {matchLabels: {vm: "yes"}}
  vifType: vlan
pools:
  min: 2
  overrides:
  - namespaceSelector: {matchLabels: {team: a}}
    min: 1
services:
  subnetIDs: [%s]
  externalNetworkID: %s
  provider: ovn
  sourceRangesBySecurityGroups: true
`, clusterID, subnet, group, vips, outside)
}

// begin starts a controller with the configuration, but with pools that keep no free ports yet. So
// the port that a pod gives back stays.
func (r *recorder) begin() {
	r.bed.t.Helper()
	r.current = (&left{configuration: r.configuration}).settings(r.bed.t)
	first := r.current
	first.Pools.Min, first.Pools.Overrides, first.Pools.Cooldown.Duration = 0, slices.Clone(first.Pools.Overrides), time.Second
	first.Pools.Overrides[0].Min = new(int32(0))
	r.settings = settings.NewLive(first)
	file := filepath.Join(r.bed.t.TempDir(), "clouds.yaml")
	if err := os.WriteFile(file, r.api.Clouds(), 0o600); err != nil {
		r.bed.t.Fatal(err)
	}
	r.stop = runController(r.bed.t, serverOf(r.bed.t), file, r.settings)
}

// live runs the life of the cluster. It leaves
//   - on a node of its own and on one that is a virtual machine: pods with their ports
//     plugged, annotated, and free ports, one of which a pod has had before;
//   - a namespace with a pool of its own;
//   - a pod that has finished, and whose port is free again;
//   - a Service with members, one with a floating IP, one whose source ranges a security
//     group keeps, one whose ranges an amphora keeps, and one with an impossible request.
func (r *recorder) live() {
	r.bed.t.Helper()
	r.nodeStatus(node, "198.51.100.1", true)
	r.create(nodeNamed("node-2"))
	r.label(nodeNamed("node-2"), "vm", "yes")
	r.nodeStatus("node-2", machineAddr, true)
	r.label(r.namespace("team-a"), "team", "a")
	var ips []string
	for _, name := range []string{"web-1", "web-2"} {
		ips = append(ips, r.run(name).Spec.VIF.Addresses[0].IP)
	}
	r.run("own", inNamespace("team-a"))
	r.run("nested", onNode("node-2"))
	gone := r.pod("gone")
	port := r.bound(gone)
	r.plug(port, true)
	r.delete(gone)
	r.plug(port, false)
	done := r.pod("done", onNode("node-2"))
	port2 := r.bound(done)
	r.plug(port2, true)
	r.setPhase(done, corev1.PodSucceeded)
	r.plug(port2, false)
	r.eventually("their ports are free", func() bool {
		free := 0
		for _, p := range r.ports() {
			if p.Spec.PodRef == nil && p.Status.Phase == v1.PortAvailable {
				free++
			}
		}
		return free == 2
	})
	r.settings.Set(r.current)

	s := r.services
	s.service("web", ports(2))
	s.sliceWith(2, "web", ips)
	s.service("public", balanced)
	s.slice("public", "public-1", ips...)
	ranges := func(svc *corev1.Service) { svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} }
	s.service("fenced", balanced, ranges)
	s.slice("fenced", "fenced-1", ips[0])
	s.service("amphora", balanced, ranges, by("amphora"))
	s.slice("amphora", "amphora-1", ips[1])
	s.service("odd", func(svc *corev1.Service) {
		svc.Annotations = map[string]string{"openstack.org/kuryr-timeout-client-data": "soon"}
	})
	s.slice("odd", "odd-1", ips[0])
	s.service("headless", func(svc *corev1.Service) { svc.Spec.ClusterIP = corev1.ClusterIPNone })
	s.slice("headless", "headless-1", ips...)
}

// run creates a pod and plugs its port, as its node does.
func (r *recorder) run(name string, change ...func(*corev1.Pod)) *v1.KuryrPort {
	r.bed.t.Helper()
	pod := r.pod(name, change...)
	port := r.bound(pod)
	r.plug(port, true)
	r.setPhase(pod, corev1.PodRunning)
	r.eventually("pod "+name+" is annotated", func() bool { return r.annotation(pod) != "" })
	return port
}

func (r *recorder) plug(port *v1.KuryrPort, plugged bool) {
	r.bed.t.Helper()
	r.ask(http.MethodPut, "/sim/ports/"+port.Name, map[string]any{"plugged": plugged}, nil)
	r.attach(port, plugged)
}

// rest waits until everything is complete and no client has written for some seconds.
func (r *recorder) rest() {
	r.bed.t.Helper()
	r.eventually("the load balancers are ready", func() bool {
		for name, public := range map[string]bool{"web": false, "odd": false, "public": true, "fenced": true, "amphora": true} {
			klb := r.services.balancerOf(name)
			if klb == nil || !meta.IsStatusConditionTrue(klb.Status.Conditions, v1.ConditionReady) || (klb.Status.PublicIP != nil) != public {
				return false
			}
		}
		return true
	})
	r.eventually("pools have their free ports", func() bool {
		free := map[string]int32{}
		for _, p := range r.pools() {
			free[p.Spec.Key.NodeName+" "+p.Spec.Key.Namespace] = p.Status.Available
		}
		return maps.Equal(free, map[string]int32{node + " ": 2, node + " team-a": 1, "node-2 ": 2})
	})
	var before, now map[string]string // resource versions
	for n := -1; n != r.notes.count() || !maps.Equal(before, now); before, now = now, versionsOf(dumpObjects(r.bed.t, r.client)) {
		n = r.notes.count()
		time.Sleep(3 * time.Second)
	}
}

func (r *recorder) archive() *txtar.Archive {
	r.bed.t.Helper()
	a := &txtar.Archive{Comment: []byte(recordHeader), Files: []txtar.File{{Name: fileConfiguration, Data: r.configuration}}}
	objects := dumpObjects(r.bed.t, r.client)
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		o := objects[key]
		o.SetResourceVersion("") // etcd's own count
		a.Files = append(a.Files, txtar.File{Name: key + ".yaml", Data: r.text(o)})
	}
	text := func(lines []string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }
	a.Files = append(a.Files, txtar.File{Name: fileRequests, Data: text(r.notes.all)}, txtar.File{Name: fileCloud, Data: text(r.listed())})
	return a
}

// text returns an object as YAML, with a line for each manager of its fields.
func (r *recorder) text(o *unstructured.Unstructured) []byte {
	r.bed.t.Helper()
	managed, _, err := unstructured.NestedSlice(o.Object, "metadata", "managedFields")
	if err != nil {
		r.bed.t.Fatal(err)
	}
	o.SetManagedFields(nil)
	data, err := yaml.Marshal(o)
	if err != nil {
		r.bed.t.Fatal(err)
	}
	lines := "metadata:\n  managedFields:\n"
	for _, m := range managed {
		line, err := json.Marshal(m)
		if err != nil {
			r.bed.t.Fatal(err)
		}
		lines += "  - " + string(line) + "\n"
	}
	return bytes.Replace(data, []byte("metadata:\n"), []byte(lines), 1)
}
