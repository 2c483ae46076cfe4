// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// services is the Kubernetes API, as far as node ports need it; *Services is one.
type services interface {
	Services() cache.ListerWatcher
	EndpointSlices() cache.ListerWatcher
	// APIServers are the EndpointSlices of the Service default/kubernetes.
	APIServers() cache.ListerWatcher
	// Address is that at which the API is asked, zero if it goes by a name.
	Address() netip.Addr
}

// serviceWatch is the cluster's Services as last seen, and answers at their health
// check ports.
type serviceWatch struct {
	informer cache.SharedIndexInformer
	api      cache.SharedIndexInformer // EndpointSlices of the API's Service
	checks   *healthChecks
	end      context.CancelFunc
	running  sync.WaitGroup
}

// watchServices begins; changed is called with each change. End it with stop.
func watchServices(ctx context.Context, node string, from services, changed func()) *serviceWatch {
	w := &serviceWatch{
		informer: cache.NewSharedIndexInformerWithOptions(from.Services(), &corev1.Service{}, cache.SharedIndexInformerOptions{}),
		api:      cache.NewSharedIndexInformerWithOptions(from.APIServers(), &discoveryv1.EndpointSlice{}, cache.SharedIndexInformerOptions{}),
		checks:   newHealthChecks(node, from),
	}
	_ = w.informer.SetTransform(slimService) // this and the next fail only once it runs
	ctx, w.end = context.WithCancel(ctx)
	for _, informer := range []cache.SharedIndexInformer{w.informer, w.api} {
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			UpdateFunc: func(_, _ any) { changed() },
			DeleteFunc: func(any) { changed() },
		})
		w.running.Go(func() { informer.RunWithContext(ctx) })
	}
	w.running.Go(func() {
		if cache.WaitFor(ctx, "", w.informer.HasSyncedChecker(), w.api.HasSyncedChecker()) {
			changed()
		}
	})
	return w
}

func (w *serviceWatch) stop() {
	w.checks.stop()
	w.end()
	w.running.Wait()
}

func (w *serviceWatch) synced() bool { return w.informer.HasSynced() && w.api.HasSynced() }

// all are the Services; none if nobody watches them.
func (w *serviceWatch) all() []*corev1.Service {
	if w == nil {
		return nil
	}
	objs := w.informer.GetStore().List()
	all := make([]*corev1.Service, 0, len(objs))
	for _, obj := range objs {
		if svc, ok := obj.(*corev1.Service); ok {
			all = append(all, svc)
		}
	}
	return all
}

// apiServers are the Kubernetes API's; none if nobody watches them.
func (w *serviceWatch) apiServers() nodeport.APIServers {
	if w == nil {
		return nodeport.APIServers{}
	}
	servers := nodeport.APIServers{Node: w.checks.node, By: w.checks.from.Address()}
	for _, obj := range w.api.GetStore().List() {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			servers.Slices = append(servers.Slices, slice)
		}
	}
	return servers
}

// slimService drops what node ports do not need, before it is kept.
func slimService(obj any) (any, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil // a tombstone
	}
	s := svc.Spec
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID, ResourceVersion: svc.ResourceVersion,
			CreationTimestamp: svc.CreationTimestamp, Labels: svc.Labels,
		},
		Spec: corev1.ServiceSpec{
			Type: s.Type, ClusterIP: s.ClusterIP, ClusterIPs: s.ClusterIPs, ExternalIPs: s.ExternalIPs, Ports: s.Ports,
			LoadBalancerClass: s.LoadBalancerClass, ExternalTrafficPolicy: s.ExternalTrafficPolicy,
			HealthCheckNodePort: s.HealthCheckNodePort,
		},
	}, nil
}
