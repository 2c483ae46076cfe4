// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

const definition = "../../config/crd/openstack.org_kuryrloadbalancers.yaml"

// older is an API server as a release without Services left it. It lacks the kinds for Services,
// and its controller has only the permissions for pods.
type older struct {
	*serviceBed
	env   *envtest.Environment
	asked requests
	told  said
}

// requests are the paths of the controller's requests.
type requests struct {
	mu  sync.Mutex
	all []string
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		r.mu.Lock()
		r.all = append(r.all, q.Method+" "+q.URL.Path)
		r.mu.Unlock()
		return next.RoundTrip(q)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// about returns the requests about kinds.
func (r *requests) about(kinds ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, q := range r.all {
		if slices.ContainsFunc(kinds, func(k string) bool { return strings.Contains(q, "/"+k) }) {
			found = append(found, q)
		}
	}
	return found
}

// said records the controller's reports to its operator.
type said struct {
	mu  sync.Mutex
	all []string
}

func (s *said) tell(_ context.Context, fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fault.Error())
}

func (s *said) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return ""
	}
	return s.all[len(s.all)-1]
}

func (s *said) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// newOlder starts an API server of its own for the test.
func newOlder(t *testing.T) *older {
	t.Helper()
	t.Parallel()
	o := &older{env: apitest.StartWith(t, "openstack.org_kuryrports.yaml", "openstack.org_kuryrportpools.yaml")}
	servers.Store(t, o.env.Config)
	user, err := o.env.AddUser(envtest.User{Name: "kuryr-controller"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.serviceBed = newServiceBed(t)
	o.as = user.Config()
	o.as.QPS = -1
	o.as.Wrap(o.asked.wrap)
	o.tell = o.told.tell
	o.grant(func(r rbacv1.PolicyRule) bool {
		return !slices.ContainsFunc(r.Resources, func(s string) bool {
			return strings.HasPrefix(s, "services") || s == "endpointslices"
		})
	}, "kuryrports", "kuryrportpools", "kuryrports/status", "kuryrportpools/status")
	return o
}

// grant gives the controller the permissions of the manifests, as far as keep returns true. Of
// Kuryr's own kinds it installs these; all if own is empty.
func (o *older) grant(keep func(rbacv1.PolicyRule) bool, own ...string) {
	o.t.Helper()
	role := clusterRole(o.t)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return !keep(r) })
	for i := range role.Rules {
		if r := &role.Rules[i]; slices.Contains(r.APIGroups, v1.GroupVersion.Group) && len(own) > 0 {
			r.Resources = slices.DeleteFunc(r.Resources, func(s string) bool { return !slices.Contains(own, s) })
		}
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return len(r.Resources) == 0 })
	err := o.client.Create(o.t.Context(), role)
	if apierrors.IsAlreadyExists(err) {
		err = o.client.Update(o.t.Context(), role)
	} else if err == nil {
		err = o.client.Create(o.t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "kuryr-controller"}},
		})
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

func everything(rbacv1.PolicyRule) bool { return true }

// clusterRole returns the ClusterRole of the manifests.
func clusterRole(t testing.TB) *rbacv1.ClusterRole {
	t.Helper()
	f, err := os.Open("../../config/base/controller-roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var role rbacv1.ClusterRole
		if err := d.Decode(&role); err != nil {
			t.Fatal("the manifests have no ClusterRole: ", err)
		}
		if role.Kind == "ClusterRole" {
			return &role
		}
	}
}

// serves checks that a pod gets its port.
func (o *older) serves(name string) {
	o.t.Helper()
	o.bound(o.pod(name))
}

// TestWithoutServices: a cluster without Kuryr's Services needs nothing for them. It gets no
// continuous requests about them.
func TestWithoutServices(t *testing.T) {
	o := newOlder(t)
	o.launchWithout()
	o.serves("web-0")
	if got := o.asked.about("services", "endpointslices", "kuryrloadbalancers", "selfsubjectaccessreviews"); len(got) > 0 {
		t.Errorf("asked %v", got)
	}
	if n := o.told.count(); n > 0 {
		t.Errorf("told %v", o.told.all)
	}
	// The kinds and the permissions exist, but the configuration still does not want Services.
	o.stop()
	o.install()
	o.grant(everything)
	o.launchWithout()
	o.serves("web-1")
	o.never("Services are watched", func() bool { return len(o.asked.about("endpointslices")) > 0 })
	if got := o.asked.about("services", "kuryrloadbalancers"); len(got) > 2 {
		t.Errorf("asked %v, want to be asked once whether something is left", got)
	}
}

func (o *older) install() {
	o.t.Helper()
	if _, err := envtest.InstallCRDs(o.env.Config, envtest.CRDInstallOptions{Paths: []string{definition}}); err != nil {
		o.t.Fatal(err)
	}
}

// TestServicesTooEarly: the configuration wants Services before the kinds and permissions exist.
// Pods are served, and the missing parts are reported. Services are served once nothing is missing.
func TestServicesTooEarly(t *testing.T) {
	o := newOlder(t)
	o.whole = true
	o.launch()
	o.serves("web-0")
	o.eventually("it is told that the kind is missing", func() bool { return strings.Contains(o.told.last(), "kuryrloadbalancers.openstack.org") })
	o.never("and again and again", func() bool { return o.told.count() > 1 })
	o.install()
	o.eventually("it is told that permissions are missing", func() bool { return strings.Contains(o.told.last(), "may not get services") })
	o.mentions("what is told", o.told.last(), "watch endpointslices", "patch services/status", "create kuryrloadbalancers", "only pods are")
	o.serves("web-1")
	o.grant(everything)
	o.eventually("Services are served", func() bool { return o.balancerOf("kubernetes") != nil })
	o.serves("web-2")
}

// TestServicesLater: the settings of a running controller, which did not need the kinds so far,
// begin to want Services.
func TestServicesLater(t *testing.T) {
	o := newOlder(t)
	o.launchWithout()
	o.serves("web-0")
	o.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{vipSubnet} })
	o.eventually("it is told that the kind is missing", func() bool { return o.told.count() > 0 })
	o.set(func(s *settings.Settings) { s.Services.SubnetIDs = nil }) // the operators change their minds
	o.never("it is told once more", func() bool { return o.told.count() > 1 })
	o.install()
	o.grant(everything)
	o.never("Services are watched", func() bool { return len(o.asked.about("endpointslices")) > 0 })
	o.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{vipSubnet} })
	o.eventually("Services are served", func() bool { return o.balancerOf("kubernetes") != nil })
}

// TestLeftFromBefore: a Service got a load balancer while subnets were configured. It can be
// deleted when none are configured any more, also after a restart. So can a Service that has only
// the finalizer left.
func TestLeftFromBefore(t *testing.T) {
	b := newServiceBed(t)
	b.whole = true
	b.launch()
	svc, bare := b.service("web"), b.service("bare")
	b.slice("web", "web-1", "10.1.0.5")
	b.eventually("the load balancer is ready", func() bool {
		klb := b.balancerOf("web")
		return klb != nil && len(klb.Status.LoadBalancers) == 1
	})
	b.stop()
	b.launchWithout()
	b.never("something becomes of what there is", func() bool { return !b.balancerOf("web").DeletionTimestamp.IsZero() })
	b.delete(svc)
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	b.stop()
	b.patch(bare, map[string]any{"metadata": map[string]any{"finalizers": []string{v1.ServiceFinalizer}}})
	b.eventually("there is no load balancer but that of default/kubernetes", func() bool { return b.balancerOf("web") == nil })
	b.letGoKubernetes()
	b.launchWithout()
	b.delete(bare)
	b.eventually("the other Service is gone", func() bool { return b.now(bare) == nil })
}

// letGoKubernetes removes everything that Kuryr wrote from default/kubernetes.
func (b *serviceBed) letGoKubernetes() {
	b.t.Helper()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}}
	b.patch(svc, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	if b.balancerOf("kubernetes") != nil {
		b.letGo("kubernetes")
		_ = b.client.Delete(b.t.Context(), b.balancerOf("kubernetes"))
	}
}

// launchWithout launches a controller whose settings never wanted Services.
func (b *serviceBed) launchWithout() {
	b.t.Helper()
	b.current.Services.SubnetIDs = nil
	b.settings = settings.NewLive(b.current)
	b.launch()
}
