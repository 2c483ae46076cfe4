// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// The files of a recording besides those of the objects, which have the names of their keys in
// etcd.
const (
	fileConfiguration = "kuryr.yaml"
	fileRequests      = "requests" // that created the cloud, one a line: POST /networking/v2.0/ports {…}
	fileCloud         = "cloud"    // the resources of the cloud in the end, one a line
)

// left is a recording.
type left struct {
	configuration []byte
	requests      []string
	cloud         []string
	files         []txtar.File // of the objects
}

func readRecording(t testing.TB, path string) *left {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l := &left{}
	for _, f := range archive.Files {
		switch f.Name {
		case fileConfiguration:
			l.configuration = f.Data
		case fileRequests:
			l.requests = linesOf(f.Data)
		case fileCloud:
			l.cloud = linesOf(f.Data)
		default:
			f.Data = []byte(reworded.Replace(string(f.Data)))
			l.files = append(l.files, f)
		}
	}
	return l
}

// reworded has the messages of conditions that say the same in other words since the recording. Each
// costs one write of a status.
var reworded = strings.NewReplacer(
	"Nothing is to be done.", "No action needed.",
	"The port is in the SDN as wanted.", "The port matches its spec.",
)

func linesOf(text []byte) []string { return strings.Split(strings.TrimSpace(string(text)), "\n") }

// has reports whether an object's key has this suffix.
func (l *left) has(key string) bool {
	return slices.ContainsFunc(l.files, func(f txtar.File) bool { return strings.HasSuffix(f.Name, key+".yaml") })
}

// objects returns the recorded objects by their keys.
func (l *left) objects(t testing.TB) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, f := range l.files {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(f.Data, &o.Object); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		all[strings.TrimSuffix(f.Name, ".yaml")] = o
	}
	return all
}

// settings returns the settings of the recorded configuration.
func (l *left) settings(t testing.TB) settings.Settings {
	t.Helper()
	c, err := config.Parse(l.configuration)
	if err != nil {
		t.Fatal(err)
	}
	return *c
}

// runController runs a controller as in production, with all its parts, until stop is called.
func runController(t testing.TB, server *rest.Config, clouds string, live *settings.Live) (stop func()) {
	t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(server, ctrl.Options{
		Scheme: scheme, Cache: kube.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	backend, err := openstack.New(ctx, openstack.Config{ClusterID: clusterID, Cloud: "kuryr", CloudsFile: clouds, RequestsPerSecond: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.Setup(ctx, mgr, controller.Options{
		Ports: backend, Visibility: backend, Capacity: backend, Hosts: backend, LoadBalancers: backend, FloatingIPs: backend, Subnets: backend, SecurityGroups: backend,
		Settings: live,
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// simulated is a simulated OpenStack, as an administrator sees it.
type simulated struct {
	api *openstacksim.Cloud
	*openstackCloud
}

// newSimulated runs the initial cloud of the recorded requests. If before is not nil, its result
// handles the requests in front of the cloud.
func newSimulated(t testing.TB, before func(*openstacksim.Cloud) openstackAPI) *simulated {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	cloud, err := openstacksim.New(openstacksim.Options{
		URL: "http://" + server.Listener.Addr().String(), Seed: 1, Hosts: []string{node}, Amphora: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulated{api: cloud, openstackCloud: &openstackCloud{t: t, api: cloud, cluster: clusterID}}
	if before != nil {
		s.openstackCloud.api = before(cloud)
	}
	server.Config.Handler = s.openstackCloud.api
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(cloud.Close)
	s.logIn()
	return s
}

func (s *simulated) ask(method, path string, in, out any) {
	s.t.Helper()
	if _, err := s.openstackCloud.ask(method, path, in, out); err != nil {
		s.t.Fatal(err)
	}
}

// upgradeKinds are the kinds of listed, by service.
var upgradeKinds = map[string][]string{
	"/networking/v2.0/":          {"network", "subnet", "router", "security-group", "port", "trunk", "floatingip"},
	"/load-balancer/v2.0/lbaas/": {"loadbalancer", "listener", "pool", "healthmonitor"},
}

// listed returns all resources, one a line, without times and counts of changes.
func (s *simulated) listed() (lines []string) {
	s.t.Helper()
	rows := func(kind, path string) []map[string]any {
		var lists map[string][]map[string]any
		s.ask(http.MethodGet, path, nil, &lists)
		for _, row := range lists[strings.ReplaceAll(kind, "-", "_")+"s"] {
			trimTimes(row)
			line, err := json.Marshal(row)
			if err != nil {
				s.t.Fatal(err)
			}
			lines = append(lines, kind+" "+string(line))
		}
		return lists[kind+"s"]
	}
	for base, kinds := range upgradeKinds {
		for _, kind := range kinds {
			for _, row := range rows(kind, base+kind+"s") {
				if kind == "pool" {
					rows("member", fmt.Sprintf("%spools/%v/members", base, row["id"]))
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// trimTimes removes times and counts of changes from a row and the rows in it.
func trimTimes(row map[string]any) {
	for _, field := range []string{"created_at", "updated_at", "revision_number"} {
		delete(row, field)
	}
	for _, value := range row {
		if list, is := value.([]any); is {
			for _, e := range list {
				if inner, is := e.(map[string]any); is {
					trimTimes(inner)
				}
			}
		}
	}
}

// rebuild creates the cloud by the requests that created the recorded one, in their order. So every
// resource has its ID again.
func (u *upgrade) rebuild() {
	u.t.Helper()
	u.simulated = newSimulated(u.t, nil)
	for _, line := range u.left.requests {
		request, text, _ := strings.Cut(line, " {")
		verb, path, _ := strings.Cut(request, " ")
		var body any
		if text != "" {
			body = json.RawMessage("{" + text)
		}
		var answer any
		(&bed{t: u.t}).eventually(line, func() bool { // a load balancer is briefly busy after each change
			_, err := u.openstackCloud.ask(verb, path, body, &answer)
			if err != nil && !strings.Contains(err.Error(), ": 409 ") {
				u.t.Fatal(err)
			}
			return err == nil
		})
	}
	var diff string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if diff = cmp.Diff(u.left.cloud, u.listed()); diff == "" { // ports become ACTIVE a moment later
			for _, lb := range u.rows("loadbalancer") {
				u.balancers = append(u.balancers, lb["id"].(string))
			}
			u.api.Reset()
			return
		}
	}
	u.t.Fatalf("the requests make another cloud (-recorded +made):\n%s", diff)
}

// removeMember deletes one member, as another user does.
func (u *upgrade) removeMember() {
	u.t.Helper()
	for _, pool := range u.rows("pool") {
		if members, _ := pool["members"].([]any); len(members) > 0 {
			u.ask(http.MethodDelete, fmt.Sprintf("/load-balancer/v2.0/lbaas/pools/%v/members/%v", pool["id"], members[0].(map[string]any)["id"]), nil, nil)
			return
		}
	}
	u.t.Fatal("there is no member")
}

func (s *simulated) rows(kind string) []map[string]any {
	s.t.Helper()
	rows, err := s.list(kind)
	if err != nil {
		s.t.Fatal(err)
	}
	return rows
}

// restore writes the objects directly into etcd. So they keep what an API server would replace:
// UIDs, generations, times and managed fields.
func (u *upgrade) restore(etcd string) {
	u.t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		u.t.Fatal(err)
	}
	if u.client, err = client.New(u.config, client.Options{Scheme: scheme}); err != nil {
		u.t.Fatal(err)
	}
	leaveAlone(u.t, u.client)
	for key, o := range u.left.objects(u.t) {
		value, err := json.Marshal(o)
		if err != nil {
			u.t.Fatalf("%s: %v", key, err)
		}
		put, err := json.Marshal(map[string][]byte{"key": []byte("/" + key), "value": value})
		if err != nil {
			u.t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(u.t.Context(), http.MethodPost, etcd+"/v3/kv/put", bytes.NewReader(put))
		if err != nil {
			u.t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			u.t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			u.t.Fatalf("putting %s into etcd: %s", key, answer.Status)
		}
	}
}

// leaveAlone makes Kuryr leave default/kubernetes alone: it is the API server's own.
func leaveAlone(t testing.TB, c client.Client) {
	t.Helper()
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = "default", "kubernetes"
	other := map[string]any{"metadata": map[string]any{"labels": map[string]any{"service.kubernetes.io/service-proxy-name": "nobody"}}}
	if err := c.Patch(t.Context(), svc, mergePatch(t, other)); err != nil {
		t.Fatal(err)
	}
}

// portOf returns the KuryrPort of a pod.
func (u *upgrade) portOf(pod string) *v1.KuryrPort {
	u.t.Helper()
	var list v1.KuryrPortList
	if err := u.client.List(u.t.Context(), &list); err != nil {
		u.t.Fatal(err)
	}
	for _, port := range list.Items {
		if ref := port.Spec.PodRef; ref != nil && ref.Name == pod {
			return &port
		}
	}
	u.t.Fatalf("pod %s has no KuryrPort", pod)
	return nil
}

// etcdKeys are the recorded kinds of objects, by their prefix in etcd.
var etcdKeys = map[string]schema.GroupVersionKind{
	"registry/minions":                          corev1.SchemeGroupVersion.WithKind("Node"),
	"registry/namespaces":                       corev1.SchemeGroupVersion.WithKind("Namespace"),
	"registry/pods":                             corev1.SchemeGroupVersion.WithKind("Pod"),
	"registry/services/specs":                   corev1.SchemeGroupVersion.WithKind("Service"),
	"registry/endpointslices":                   discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
	"registry/openstack.org/kuryrports":         v1.GroupVersion.WithKind("KuryrPort"),
	"registry/openstack.org/kuryrportpools":     v1.GroupVersion.WithKind("KuryrPortPool"),
	"registry/openstack.org/kuryrloadbalancers": v1.GroupVersion.WithKind("KuryrLoadBalancer"),
}

// dumpObjects returns all objects of these kinds by their keys, except those that each API server
// creates itself. It lists all kinds concurrently: the API server delays the first list of a new
// kind by a second.
func dumpObjects(t testing.TB, c client.Client) map[string]*unstructured.Unstructured {
	t.Helper()
	var mu sync.Mutex
	var g errgroup.Group
	all := map[string]*unstructured.Unstructured{}
	for base, kind := range etcdKeys {
		g.Go(func() error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			err := c.List(t.Context(), list)
			mu.Lock()
			defer mu.Unlock()
			for _, o := range list.Items {
				name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
				if name != "default" && name != "default/kubernetes" && !strings.HasPrefix(name, "kube-") {
					all[base+"/"+name] = &o
				}
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return all
}
