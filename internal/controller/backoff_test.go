// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// TestLongOutageOfAWrite: what is refused many times is tried again soon after,
// no matter how often: the time between two tries is bounded.
func TestLongOutageOfAWrite(t *testing.T) {
	const refusals = 14 // doubled so often, 5ms are more than a minute
	for name, funcs := range map[string]func(refused func() error) interceptor.Funcs{
		"planning": func(refused func() error) interceptor.Funcs {
			return interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					if _, ok := obj.(*v1.KuryrPort); ok {
						if err := refused(); err != nil {
							return err
						}
					}
					return c.Create(ctx, obj, opts...)
				},
			}
		},
		"applying": func(refused func() error) interceptor.Funcs {
			return interceptor.Funcs{
				SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
					if obj.(interface{ GetKind() string }).GetKind() == "KuryrPort" {
						if err := refused(); err != nil {
							return err
						}
					}
					return c.SubResource(sub).Apply(ctx, obj, opts...)
				},
			}
		},
		"annotating": func(refused func() error) interceptor.Funcs {
			return interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
					if err := refused(); err != nil {
						return err
					}
					return c.Apply(ctx, obj, opts...)
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := idleBed(t)
			var n atomic.Int32
			b.newClient = through(funcs(func() error {
				if n.Add(1) <= refusals {
					return errLost
				}
				return nil
			}))
			b.start()
			pod := b.pod("web")
			b.bound(pod)
			b.eventually("the pod is annotated", func() bool { return b.annotation(pod) != "" })
		})
	}
}
