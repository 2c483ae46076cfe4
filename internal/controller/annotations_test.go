// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// TestNewLeaderKnowsPodsLate: the cache of a new leader may show a pod after its KuryrPort, or show
// it as not scheduled yet. The pod is annotated all the same. With the annotation a KuryrPort that
// was deleted by hand is restored.
func TestNewLeaderKnowsPodsLate(t *testing.T) {
	for name, late := range map[string]cache.ByObject{
		"not there": {Label: labels.SelectorFromSet(labels.Set{"shown": "yes"})},
		"not scheduled": {Transform: func(in any) (any, error) {
			if pod, ok := in.(*corev1.Pod); ok && pod.Labels["shown"] == "" {
				pod.Spec.NodeName = ""
			}
			return in, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			pod, port := b.pluggedIn()
			none := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, v1.VIFAnnotation))
			if err := b.client.Patch(t.Context(), pod, none); err != nil { // as if not annotated yet
				t.Fatal(err)
			}
			b.delete(port)
			b.cache.ByObject = map[client.Object]cache.ByObject{&corev1.Pod{}: late}
			b.start()
			b.never("the pod is known", func() bool { return b.annotation(pod) != "" })
			b.label(pod, "shown", "yes")
			b.eventually("the pod is annotated", func() bool { return b.annotation(pod) != "" })
			b.eventually("the KuryrPort is put back", func() bool {
				again := b.portOf(pod)
				return again != nil && again.UID != port.UID
			})
		})
	}
}
