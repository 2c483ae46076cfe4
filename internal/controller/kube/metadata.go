// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchMetadata changes the metadata of an object, if nobody else has meanwhile; of
// one that is gone nothing is written. It takes an object that has nothing but its
// metadata, which are then as the API server has them.
func PatchMetadata(ctx context.Context, c client.Client, obj client.Object, kind string, owner client.FieldOwner, change func(client.Object)) error {
	old := obj.DeepCopyObject().(client.Object) // of the same type
	change(obj)
	err := c.Patch(ctx, obj, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), owner)
	if err = Lost(err); err != nil {
		return fmt.Errorf("writing metadata of %s %s: %w", kind, strings.TrimPrefix(client.ObjectKeyFromObject(old).String(), "/"), err)
	}
	return nil
}
