// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// Namespaces with a network of their own, two pods and a Service each come and go at the
// same time, and leave no network, subnet, port, interface or load balancer. KURYR_NAMESPACES
// says how many (5), KURYR_NAMESPACE_ROUNDS how often (1).
func TestNamespaceChurn(t *testing.T) {
	f := withServices(t)
	f.unbroken(t)
	number := func(name string, otherwise int) int {
		return must(strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise))))(t)
	}
	n, rounds := number("KURYR_NAMESPACES", 5), number("KURYR_NAMESPACE_ROUNDS", 1)
	limit := patience + time.Duration(n)*30*time.Second // a guard: 50 namespaces are minutes of Neutron's and Octavia's time
	ifaces := must(f.RouterInterfaces(t.Context(), os.Getenv("ROUTER")))(t)
	for round := range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		began := time.Now()
		namespaces, err := f.inhabited(ctx, n, fmt.Sprintf("r%d", round))
		if err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		inhabited := time.Since(began)
		began = time.Now()
		for _, own := range namespaces {
			if err := own.deleteNamespace(ctx); err != nil {
				t.Error(err)
			}
		}
		err = cluster.Until(ctx, func() error {
			for _, own := range namespaces {
				if err := own.namespaceGone(ctx); err != nil {
					return err
				}
			}
			now, err := f.RouterInterfaces(ctx, os.Getenv("ROUTER"))
			if err == nil && len(now) != len(ifaces) {
				err = fmt.Errorf("the router has interfaces %v, want %v", now, ifaces)
			}
			return errors.Join(err, f.networksRest(ctx), f.cloudRests(ctx), f.rests(ctx))
		})
		if err != nil {
			f.dumpNetworks(context.Background(), t)
			t.Fatalf("round %d: after the namespaces were deleted: %v", round, err)
		}
		t.Logf("round %d: %d namespaces serve after %.1f s, and are gone after %.1f s", round, n, inhabited.Seconds(), time.Since(began).Seconds())
		cancel()
	}
}

// inhabited makes namespaces with networks of their own, pods and a Service, at the same
// time, and returns them all, those with an error, too.
func (f *fixture) inhabited(ctx context.Context, n int, name string) ([]*fixture, error) {
	var wg sync.WaitGroup
	namespaces, errs := make([]*fixture, n), make([]error, n)
	for i := range n {
		own := &fixture{Cluster: f.Cluster, namespace: fmt.Sprintf("%s-%s-%d", f.namespace, name, i)}
		namespaces[i] = own
		wg.Go(func() { errs[i] = own.inhabit(ctx) })
	}
	wg.Wait()
	return namespaces, errors.Join(errs...)
}

// inhabit makes the namespace with a network of its own, and waits until a pod there is
// answered by the other through a Service.
func (f *fixture) inhabit(ctx context.Context) error {
	if err := f.EnsureNamespace(ctx, f.namespace, mode(v1.NetworkNamespace)); err != nil {
		return err
	}
	for i, node := range nodes {
		if _, err := f.Pod(ctx, f.namespace, fmt.Sprintf("pod-%d", i), node); err != nil {
			return err
		}
	}
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = f.namespace, "web"
	svc.Spec = corev1.ServiceSpec{Selector: map[string]string{"app": "pod-1"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}
	if err := f.Client.Create(ctx, svc); err != nil {
		return err
	}
	from := &corev1.Pod{}
	from.Namespace, from.Name = f.namespace, "pod-0"
	return cluster.Until(ctx, func() error {
		got, err := f.inPod(from)(ctx, get("http://"+svc.Spec.ClusterIP+"/hostname"))
		if err == nil && got != "pod-1" {
			err = fmt.Errorf("Service web of %s answers %q, want pod-1", f.namespace, got)
		}
		return err
	})
}

func (f *fixture) deleteNamespace(ctx context.Context) error {
	namespace := &corev1.Namespace{}
	namespace.Name = f.namespace
	return client.IgnoreNotFound(f.Client.Delete(ctx, namespace))
}

// namespaceGone returns an error unless Kubernetes has no such namespace.
func (f *fixture) namespaceGone(ctx context.Context) error {
	err := f.Client.Get(ctx, client.ObjectKey{Name: f.namespace}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("namespace %s is still there: %w", f.namespace, errors.Join(errNotYet, err))
}
