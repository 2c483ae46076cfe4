// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// The barrier ends when the cache shows its marker, and not before. It marks an object that is gained, if there
// is one.
func TestBarrierWaitsForTheCache(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	port := func(name, node string) *v1.KuryrPort {
		return &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.KuryrPortSpec{NodeName: node}}
	}
	behind := 0 // how often the cache shows the state before the marker
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(port("a", "theirs"), port("b", "mine"), port("c", "theirs")).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				err := c.Get(ctx, key, obj, opts...)
				if behind++; behind <= 3 {
					obj.SetAnnotations(nil)
				}
				return err
			},
		}).Build()
	b := &barrier{client: c, live: c, name: "me"}
	b.add(&v1.KuryrPortList{})
	if err := b.pass(t.Context(), func(k kube.Key) bool { return k == kube.OnNode("mine") }); err != nil {
		t.Fatal(err)
	}
	if behind < 4 {
		t.Errorf("passed after %d looks at the cache, which showed the marker at the fourth", behind)
	}
	for name, want := range map[string]string{"a": "", "b": "me 1", "c": ""} {
		is := &v1.KuryrPort{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, is); err != nil || is.Annotations[v1.ShownAnnotation] != want {
			t.Errorf("the marker of %s is %q, want %q (%v)", name, is.Annotations[v1.ShownAnnotation], want, err)
		}
	}
}
