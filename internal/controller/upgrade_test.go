// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// recording is what the controller of an older commit has left at rest: see TestRecordUpgrade.
const recording = "testdata/upgrade/b9946cc.txtar"

// TestUpgradeChangesNothing starts this controller on the objects and in the cloud that an older
// one has left. The controller reconciles and checks everything twice, and finds nothing to write:
// no request that changes the cloud, no Event, no object.
//
// A status field that a later commit adds must be excepted here, by its name. Services that Kuryr
// makes public get v1.CleanupFinalizer, and one with notes gets v1.ReportedAnnotation, which were
// added later. Changes that were made while no controller ran cause writes: so the counts are not
// always 0.
func TestUpgradeChangesNothing(t *testing.T) {
	apitest.Need(t)
	wording(t) // the recorded messages
	t.Parallel()
	env := apitest.Start(t, 1)[0] // its own, as the test writes to etcd
	u := &upgrade{t: t, config: env.Config, left: readRecording(t, recording)}
	u.rebuild()
	u.restore(env.ControlPlane.Etcd.URL.String())
	before := u.versions()

	u.start()
	u.looked(2)
	u.stop()
	if writes := u.cloudWrites(); len(writes) > 0 {
		t.Errorf("requests that change the cloud: %v", writes)
	}
	writes, after := u.written(), u.versions()
	for _, public := range []string{"amphora", "fenced", "public", "odd"} {
		patch, key := "PATCH /api/v1/namespaces/default/services/"+public+"/status", "registry/services/specs/default/"+public
		if !slices.Contains(writes, patch) {
			t.Errorf("Service %s is not written, want its finalizer, or the record of its notes, to be", public)
		}
		writes = slices.DeleteFunc(writes, func(w string) bool { return w == patch }) // again, if the cache has not shown it yet
		delete(before, key)
		delete(after, key)
	}
	// Of these the status says more since: whether there is a security group, the network of the floating
	// IP, and what was left out, which is told in an Event once more.
	for _, more := range []string{"amphora", "public", "fenced"} {
		patch, key := "PATCH /apis/openstack.org/v1/namespaces/default/kuryrloadbalancers/"+more+"/status", "registry/openstack.org/kuryrloadbalancers/default/"+more
		n := len(writes)
		writes = slices.DeleteFunc(writes, func(w string) bool { return w == patch })
		if n -= len(writes); n < 1 || n > 2 {
			t.Errorf("the status of KuryrLoadBalancer %s is written %d times, want once, or twice for two things", more, n)
		}
		delete(before, key)
		delete(after, key)
	}
	if i := slices.Index(writes, "POST /apis/events.k8s.io/v1/namespaces/default/events"); i >= 0 {
		writes = slices.Delete(writes, i, i+1)
	}
	if len(writes) > 0 {
		t.Errorf("writes to the API server:\n%s", strings.Join(writes, "\n"))
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("versions of objects (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(u.left.cloud, u.listed()); diff != "" {
		t.Errorf("the cloud (-before +after):\n%s", diff)
	}
	if !t.Failed() {
		u.changed()
	}
}

// changed shows that each of the counts can be above 0, and the field managers of the writes then.
// While no controller runs, a member, a pod's port and a pod's annotation are removed, and a pod is
// created.
func (u *upgrade) changed() {
	u.t.Helper()
	u.removeMember()
	u.ask(http.MethodDelete, "/networking/v2.0/ports/"+u.portOf("web-1").Name, nil, nil)
	web2 := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-2"}}
	none := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1.VIFAnnotation: nil}}}
	if err := u.client.Patch(u.t.Context(), web2, mergePatch(u.t, none)); err != nil {
		u.t.Fatal(err)
	}
	bed := &bed{t: u.t, client: u.client}
	pod := bed.pod("new")
	u.api.Reset()
	u.start()
	defer u.stop()
	free := bed.bound(pod).Name
	for what, there := range map[string]func() bool{
		"the member is put back":          func() bool { return u.cloudWrites()["POST pools/{id}/members"] > 0 },
		"the pods are annotated":          func() bool { return bed.annotation(web2) != "" && bed.annotation(pod) != "" },
		"an Event tells of the lost port": func() bool { return u.wrote("POST /apis/events.k8s.io/v1/namespaces/default/events") },
	} {
		bed.eventually(what, there)
	}
	if !u.left.has("kuryrports/" + free) {
		u.t.Errorf("the new pod has port %s, want one of those that were free", free)
	}
	names := managers(dumpObjects(u.t, u.client))
	delete(names, "Pod status Apply kuryr-annotation") // earlier, through the pod itself
	for name := range managers(u.left.objects(u.t)) {
		delete(names, name)
	}
	if len(names) > 0 {
		u.t.Errorf("fields are written under other names than those recorded: %v", slices.Collect(maps.Keys(names)))
	}
}

// managers returns the field managers of objects, with their kinds, except those of test programs.
func managers(objects map[string]*unstructured.Unstructured) map[string]bool {
	names := map[string]bool{}
	for _, o := range objects {
		for _, m := range o.GetManagedFields() {
			if !strings.HasSuffix(m.Manager, ".test") {
				names[fmt.Sprint(o.GetKind(), " ", m.Subresource, " ", m.Operation, " ", m.Manager)] = true
			}
		}
	}
	return names
}

// start starts a controller that checks everything again and again.
func (u *upgrade) start() {
	u.t.Helper()
	now := u.left.settings(u.t)
	often := metav1.Duration{Duration: 200 * time.Millisecond}
	now.Orphans.Interval, now.Orphans.Grace, now.Services.CheckInterval = often, often, often
	now.Neutron.RequestsPerSec, now.Services.Allowed.Providers = 0, []string{"amphora"}
	config := rest.CopyConfig(u.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return countedWay{u, next} })
	u.stop = runController(u.t, config, u.api.CloudsFile(u.t), settings.NewLive(now))
}

// countedWay is a transport to the API server that records each writing request. A question about
// permissions writes nothing.
type countedWay struct {
	*upgrade
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c countedWay) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "accessreviews") {
		c.mu.Lock()
		c.writes = append(c.writes, r.Method+" "+r.URL.Path)
		c.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

// looked waits until the controller has listed all ports, load balancers, floating IPs and security
// groups of the cloud this many times. It waits for as many checks of each of its load balancers,
// and then for their consequences.
func (u *upgrade) looked(times int) {
	u.t.Helper()
	(&bed{t: u.t}).eventually("the controller has looked at everything", func() bool {
		asked := map[string]int{}
		for _, c := range u.api.Calls() {
			asked[c.Path]++
		}
		wanted := []string{"/v2.0/ports", "/v2.0/floatingips", "/v2.0/security-groups", "/v2.0/lbaas/loadbalancers"}
		for _, id := range u.balancers {
			wanted = append(wanted, "/v2.0/lbaas/loadbalancers/"+id)
		}
		return !slices.ContainsFunc(wanted, func(path string) bool { return asked[path] < times })
	})
	time.Sleep(1200 * time.Millisecond) // longer than Options.StatusGap
}

// cloudWrites returns the requests that could change the cloud, with their counts.
func (u *upgrade) cloudWrites() map[string]int {
	writes := map[string]int{}
	for _, c := range u.api.Counts() {
		if c.Service != "identity" && c.Method != http.MethodGet {
			writes[c.Method+" "+c.Resource] += c.Calls
		}
	}
	return writes
}

func (u *upgrade) written() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.writes)
}

func (u *upgrade) wrote(what string) bool { return slices.Contains(u.written(), what) }

// versions returns the resource versions of all objects of the recorded kinds.
func (u *upgrade) versions() map[string]string {
	u.t.Helper()
	return versionsOf(dumpObjects(u.t, u.client))
}

func versionsOf(objects map[string]*unstructured.Unstructured) map[string]string {
	versions := map[string]string{}
	for key, o := range objects {
		versions[key] = o.GetResourceVersion()
	}
	return versions
}

// upgrade is a cluster and a cloud as an older controller has left them.
type upgrade struct {
	t      *testing.T
	config *rest.Config
	client client.Client
	left   *left
	*simulated
	balancers []string // the IDs of all load balancers, as created
	stop      func()

	mu     sync.Mutex
	writes []string
}
