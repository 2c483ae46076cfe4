// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// wired is a controller process as runController makes it, which has not joined.
type wired struct {
	manager ctrl.Manager
	replica *shards.Replica
	backend *openstack.Backend
	cloud   *openstacksim.Cloud
	server  string // the API server, which has nothing but an empty list of Leases
}

func newWired(t *testing.T) (w wired) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s was sent", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(kubeconfig, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: '%s'}}]\n"+
		"contexts: [{name: c, context: {cluster: c}}]\n", server.URL), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w.server = server.URL
	w.cloud = openstacksim.Start(t)
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", w.cloud.CloudsFile(t))
	flags := controllerFlags{kubeconfig: kubeconfig, metricsAddress: "0", healthAddress: "0", leaderAddress: "0", leaderElect: true, leaderNamespace: "default"}
	w.manager, w.replica, err = newManager(t.Context(), flags, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse([]byte("apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\nclusterID: one\n" +
		"pods: {subnetIDs: [7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, fence := owner(w.replica)
	if w.backend, err = newBackend(t.Context(), nil, c, fence); err != nil {
		t.Fatal(err)
	}
	if err := takePart(w.manager, w.replica, flags, settings.NewLive(*c), w.backend); err != nil {
		t.Fatal(err)
	}
	return w
}

// A process without a Lease that it has renewed in time changes nothing: neither objects of Kubernetes, nor
// resources of the cloud.
func TestRequestsAskTheFence(t *testing.T) {
	w := newWired(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.server+"/api/v1/namespaces/n/pods/p", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.manager.GetHTTPClient().Do(r)
	if err == nil {
		_ = res.Body.Close()
	}
	if !errors.Is(err, sdn.ErrFenced) {
		t.Errorf("DELETE of a pod: %v, want %v", err, sdn.ErrFenced)
	}
	_, err = w.backend.CreateNetwork(t.Context(), sdn.Owner{Kind: "kuryrnetwork", Name: "n"}, sdn.NetworkSpec{Name: "n"})
	if n := w.cloud.Count(http.MethodPost, "networks"); !errors.Is(err, sdn.ErrFenced) || n > 0 {
		t.Errorf("POST of a network: %v, sent %d times, want %v", err, n, sdn.ErrFenced)
	}
}

// What a process may ask of the cloud is its share of the limits, from the start on, and as its keys come and go.
func TestLimitsFollowTheShare(t *testing.T) {
	w := newWired(t)
	all, half := shard.All(), shard.Set{}
	for b := range shard.Buckets / 2 {
		half = half.With(b)
	}
	before := rateLimit(t)
	w.replica.Open(t.Context(), all, false)
	whole := rateLimit(t)
	w.replica.Lose(half)
	if left := rateLimit(t); before >= whole/10 || left != whole/2 {
		t.Errorf("requests a second: %v without keys, %v with all, %v with half of them", before, whole, left)
	}
}

// rateLimit returns how many requests a second the metrics say that Neutron may get.
func rateLimit(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kuryr_cloud_request_rate_limit" && strings.Contains(m.String(), "network") {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatal("no metric of the limit")
	return 0
}
