// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// healthChecks answers at the health check ports of Services whether this node has endpoints of
// the Service. Load balancers outside of the cloud ask there. It watches EndpointSlices only
// while such a Service exists.
type healthChecks struct {
	node    string
	from    services
	servers map[nodeport.Check]*http.Server
	open    connections    // of all servers
	healthy [2]atomic.Bool // whether IPv4, IPv6 traffic is forwarded correctly

	mu     sync.Mutex
	slices cache.SharedIndexInformer // nil: no Service needs them
	end    context.CancelFunc        // ends the watch of slices
}

func newHealthChecks(node string, from services) *healthChecks {
	return &healthChecks{node: node, from: from, servers: map[nodeport.Check]*http.Server{}}
}

// ensure answers at exactly these ports. healthy, for IPv4 and for IPv6, is part of the answers
// to clients of that family. blocked is the number of ports that another program has (kube-proxy,
// for example); the error names them. One goroutine calls ensure and stop.
func (h *healthChecks) ensure(ctx context.Context, checks []nodeport.Check, healthy [2]bool) (blocked int, err error) {
	for i, is := range healthy {
		h.healthy[i].Store(is)
	}
	if len(checks) > 0 {
		h.watch(ctx)
	} else {
		h.unwatch()
	}
	wanted := map[nodeport.Check]bool{}
	for _, c := range checks {
		wanted[c] = true
	}
	for c, server := range h.servers {
		if !wanted[c] {
			_ = server.Close()
			delete(h.servers, c)
		}
	}
	var errs []error
	for _, c := range checks {
		if h.servers[c] == nil {
			if err := h.serve(ctx, c); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return len(errs), errors.Join(errs...)
}

// stop ends the servers and the watch.
func (h *healthChecks) stop() {
	h.unwatch()
	for c, server := range h.servers {
		_ = server.Close()
		delete(h.servers, c)
	}
}

func (h *healthChecks) serve(ctx context.Context, c nodeport.Check) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(int(c.Port))))
	if err != nil {
		return fmt.Errorf("serving the health check port of Service %s: %w", c.Service, err)
	}
	server := h.open.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.answer(w, r, c.Service) }))
	h.servers[c] = server
	go func() { _ = server.Serve(listener) }() // until the server is closed
	return nil
}

// answer answers like kube-proxy, at any path, because clients expect that.
func (h *healthChecks) answer(w http.ResponseWriter, r *http.Request, service types.NamespacedName) {
	local, healthy := h.local(service), h.healthy[familyOf(r)].Load()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(local))
	if local == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if err := json.NewEncoder(w).Encode(healthAnswer{serviceName(service), local, healthy}); err != nil {
		return // the client is gone
	}
}

// familyOf returns 1 for an IPv6 client, otherwise 0.
func familyOf(r *http.Request) int {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if ok && at.IP.To4() == nil {
		return 1
	}
	return 0
}

type healthAnswer struct {
	Service             serviceName `json:"service"`
	LocalEndpoints      int         `json:"localEndpoints"`
	ServiceProxyHealthy bool        `json:"serviceProxyHealthy"`
}

type serviceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

const serviceIndex = "service"

// local returns the number of a Service's endpoints on this node.
func (h *healthChecks) local(service types.NamespacedName) int {
	h.mu.Lock()
	informer := h.slices
	h.mu.Unlock()
	if informer == nil {
		return 0
	}
	objs, err := informer.GetIndexer().ByIndex(serviceIndex, service.String())
	if err != nil {
		return 0
	}
	var of []*discoveryv1.EndpointSlice
	for _, obj := range objs {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			of = append(of, slice)
		}
	}
	return nodeport.Local(of, h.node)
}

// watch starts to watch EndpointSlices, unless a watch runs already.
func (h *healthChecks) watch(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.slices != nil {
		return
	}
	h.slices = cache.NewSharedIndexInformerWithOptions(h.from.EndpointSlices(), &discoveryv1.EndpointSlice{},
		cache.SharedIndexInformerOptions{Indexers: cache.Indexers{serviceIndex: serviceOf}})
	_ = h.slices.SetTransform(h.slim) // fails only while it runs
	ctx, h.end = context.WithCancel(ctx)
	go h.slices.RunWithContext(ctx)
}

func (h *healthChecks) unwatch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.slices != nil {
		h.end()
		h.slices = nil
	}
}

func serviceOf(obj any) ([]string, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

// slim reduces an EndpointSlice to the endpoints of this node.
func (h *healthChecks) slim(obj any) (any, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil // a tombstone
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: slice.Namespace, Name: slice.Name, UID: slice.UID, ResourceVersion: slice.ResourceVersion,
			Labels: map[string]string{discoveryv1.LabelServiceName: slice.Labels[discoveryv1.LabelServiceName]},
		},
		AddressType: slice.AddressType,
		Endpoints:   nodeport.Keep(slice.Endpoints, h.node),
	}, nil
}
