// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/kuryr-go/kuryr/internal/nft"
	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// world holds Services and their EndpointSlices in the API, and a node's tables.
type world struct {
	services, slices, api *cachetesting.FakeControllerSource
	dir                   string       // of the node; it outlives the daemon
	sliced                atomic.Int32 // number of requests for EndpointSlices

	mu      sync.Mutex
	table   nodeport.Table
	ensured int
	fail    error
	failed  [2]bool // which IP family fails; if neither is set, both fail
	stuck   error   // why UDP connections continue
	off     bool    // packets are not forwarded
	hosts   []nodeport.HostPort
	lines   []string
}

func newWorld(t *testing.T) *world {
	return &world{
		dir: t.TempDir(), services: cachetesting.NewFakeControllerSource(), slices: cachetesting.NewFakeControllerSource(),
		api: cachetesting.NewFakeControllerSource(),
	}
}

func (w *world) Services() cache.ListerWatcher { return w.services }

func (w *world) EndpointSlices() cache.ListerWatcher {
	w.sliced.Add(1)
	return w.slices
}

func (w *world) APIServers() cache.ListerWatcher { return w.api }

func (w *world) Address() netip.Addr { return netip.Addr{} }

func (w *world) Ensure(_ context.Context, want nodeport.Table) (nft.Change, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ensured++
	if w.fail != nil {
		if w.failed == [2]bool{} {
			return nft.Change{Failed: [2]bool{true, true}}, w.fail
		}
		return nft.Change{Failed: w.failed}, w.fail
	}
	changed := len(want) - len(w.table)
	w.table = want
	return nft.Change{Added: max(changed, 0), Removed: max(-changed, 0), Unforgotten: w.stuck}, nil
}

func (w *world) Forwarding(bool) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.off, nil
}

func (w *world) set(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }

// passes returns the table in readable form.
func (w *world) passes() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for f, b := range w.table {
		all = append(all, fmt.Sprintf("%s:%d->%s", f.Address, f.Port, b.AddrPort))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (w *world) logged(part string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, l := range w.lines {
		if strings.Contains(l, part) {
			n++
		}
	}
	return n
}

// start runs node ports of the node "here", until the test ends or the returned function is
// called.
func (w *world) start(t *testing.T, from services) (*nodePorts, func()) {
	log := funcr.New(func(_, line string) { w.set(func() { w.lines = append(w.lines, line) }) }, funcr.Options{Verbosity: 1})
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), log))
	n := newNodePorts("here", w.dir, from, w, func() []nodeport.HostPort {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.hosts
	})
	n.serve.Store(from != nil)
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run() = %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return n, stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after 20 s: %s", what)
		}
	}
}

func webService(nodePort int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: nodePort}},
		},
	}
}

// times returns how often the tables were read.
func (w *world) times() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ensured
}
