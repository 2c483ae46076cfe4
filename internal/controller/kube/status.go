// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// ApplyStatus writes status as all that owner says of obj's status, by
// server-side apply, and returns the object's new resource version. It does not
// make the object: one that is gone stays gone.
func ApplyStatus(ctx context.Context, c client.Client, obj client.Object, kind string, status any, owner client.FieldOwner) (string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return "", fmt.Errorf("writing status of %s %s: %w", kind, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	u.SetGroupVersionKind(v1.GroupVersion.WithKind(kind))
	u.SetNamespace(obj.GetNamespace())
	u.SetName(obj.GetName())
	u.SetUID(obj.GetUID())
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership)
	if err = Lost(err); err != nil {
		return "", fmt.Errorf("writing status of %s %s: %w", kind, obj.GetName(), err)
	}
	return u.GetResourceVersion(), nil
}
