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

// services is the part of the Kubernetes API that node ports need. *API implements it.
type services interface {
	Services() cache.ListerWatcher
	EndpointSlices() cache.ListerWatcher
	// APIServers lists and watches the EndpointSlices of the Service default/kubernetes.
	APIServers() cache.ListerWatcher
	// Address is the address of the API, zero if the daemon uses a name.
	Address() netip.Addr
}

// serviceWatch holds the last known Services of the cluster, and answers at their health check
// ports.
type serviceWatch struct {
	informer cache.SharedIndexInformer
	api      cache.SharedIndexInformer // EndpointSlices of the Service default/kubernetes
	checks   *healthChecks
	end      context.CancelFunc
	running  sync.WaitGroup
}

// watchServices starts the watch. It calls changed at each change. stop ends it.
func watchServices(ctx context.Context, node string, from services, changed func()) *serviceWatch {
	w := &serviceWatch{
		informer: cache.NewSharedIndexInformerWithOptions(from.Services(), &corev1.Service{}, cache.SharedIndexInformerOptions{}),
		api:      cache.NewSharedIndexInformerWithOptions(from.APIServers(), &discoveryv1.EndpointSlice{}, cache.SharedIndexInformerOptions{}),
		checks:   newHealthChecks(node, from),
	}
	_ = w.informer.SetTransform(slimService) // this and the next call fail only while it runs
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

// all returns the Services. A nil watch has none.
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

// apiServers returns the addresses of the Kubernetes API. A nil watch has none.
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

// slimService drops fields that node ports do not need, before the informer stores the object.
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
