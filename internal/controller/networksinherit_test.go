// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// cacheWithout is a client whose cache does not show the KuryrNetwork of a namespace yet.
func cacheWithout(namespace string) client.NewClientFunc {
	return through(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if all, is := list.(*v1.KuryrNetworkList); is {
				all.Items = slices.DeleteFunc(all.Items, func(kn v1.KuryrNetwork) bool { return kn.Namespace == namespace })
			}
			return err
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, is := obj.(*v1.KuryrNetwork); is && key.Namespace == namespace {
				return apierrors.NewNotFound(schema.GroupResource{Group: v1.GroupVersion.Group, Resource: "kuryrnetworks"}, key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
}

// A controller that begins to lead chooses no prefix that the one before has written, also while its
// cache does not show that. It does not plan that namespace anew either.
func TestAPrefixThatTheCacheDoesNotShow(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	first, second := b.namespace, b.namespace+"-b"
	for _, name := range []string{b.namespace + "-a", first} {
		b.makeNamespace(name, nil)
		b.waiting(name, "pod")
		b.ready(name)
	}
	kn := b.ready(first)
	b.stop()
	b.delete(b.kn(b.namespace + "-a")) // its prefix, the first of the range, becomes free
	b.newClient = cacheWithout(first)
	b.start()
	b.makeNamespace(second, nil)
	b.waiting(second, "pod")
	b.eventually("the second namespace has a prefix", func() bool { return b.kn(second) != nil && len(b.kn(second).Spec.Subnets) > 0 })
	if got := b.kn(second).Spec.Subnets[0].CIDR; got == kn.Spec.Subnets[0].CIDR {
		t.Errorf("two namespaces have the prefix %s", got)
	}
	if now := b.kn(first); now.Generation != kn.Generation {
		t.Errorf("the KuryrNetwork of namespace %s was planned anew, with %+v; want %+v", first, now.Spec.Subnets, kn.Spec.Subnets)
	}
}
