// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// After the deadline of its Lease a process reads, works on Leases and asks for its permissions. No
// other request leaves it, and after a renewal all do again.
func TestFence(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(server.Close)
	now := time.Duration(0)
	gate := shards.NewGate(func() time.Duration { return now })
	config := &rest.Config{Host: server.URL + "/proxy", QPS: -1}
	config.Wrap(gate.Fence)
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	try := map[string]func() error{
		"GET": func() error { _, err := k.CoreV1().Pods("n").Get(ctx, "p", metav1.GetOptions{}); return err },
		"Lease": func() error {
			_, err := k.CoordinationV1().Leases("n").Update(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.UpdateOptions{})
			return err
		},
		"review": func() error {
			_, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
			return err
		},
		"create": func() error {
			_, err := k.CoreV1().Pods("n").Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
			return err
		},
		"patch": func() error {
			_, err := k.CoreV1().Pods("n").Patch(ctx, "p", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
			return err
		},
		"delete": func() error { return k.CoreV1().Pods("n").Delete(ctx, "p", metav1.DeleteOptions{}) },
	}
	admitted := []string{"GET", "Lease", "review"}
	for _, step := range []struct {
		at, deadline time.Duration
		late         bool
	}{{0, 0, true}, {1, 2, false}, {2, 2, true}, {3, 9, false}} {
		now = step.at
		gate.Renew(step.deadline, 1)
		for what, send := range try {
			got = nil
			err := send()
			switch refused := step.late && !slices.Contains(admitted, what); {
			case refused && (!errors.Is(err, sdn.ErrFenced) || len(got) > 0):
				t.Errorf("at %d of %d, %s: %v, sent %q, want ErrFenced and nothing", step.at, step.deadline, what, err, got)
			case !refused && (err != nil || len(got) != 1):
				t.Errorf("at %d of %d, %s: %v, sent %q, want one request", step.at, step.deadline, what, err, got)
			}
		}
	}
}
