// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// The fields that the cache is indexed by while namespaces have networks. Without the indexes of
// KuryrPorts each plan of a namespace would read the ports of all namespaces.
const (
	networkID     = "status.networkID"      // of KuryrNetworks
	portNetwork   = "spec.networkID"        // of KuryrPorts
	portNamespace = "spec.podRef.namespace" // of KuryrPorts with a pod
)

// Index adds the indexes that the reconcilers need.
func Index(ctx context.Context, mgr ctrl.Manager) error {
	return errors.Join(
		kube.AddIndexBy(ctx, mgr, &v1.KuryrNetwork{}, networkID, func(n *v1.KuryrNetwork) string { return n.Status.NetworkID }),
		kube.AddIndexBy(ctx, mgr, &v1.KuryrPort{}, portNetwork, func(p *v1.KuryrPort) string { return p.Spec.NetworkID }),
		kube.AddIndexBy(ctx, mgr, &v1.KuryrPort{}, portNamespace, func(p *v1.KuryrPort) string {
			if ref := p.Spec.PodRef; ref != nil {
				return ref.Namespace
			}
			return ""
		}),
	)
}

// portsWith returns the KuryrPorts with a value of an indexed field, shared with the cache: those in a
// network, or those of the pods of a namespace.
func portsWith(ctx context.Context, c client.Reader, field, value string) ([]*v1.KuryrPort, error) {
	var list v1.KuryrPortList
	if err := c.List(ctx, &list, client.MatchingFields{field: value}, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPorts by %s %s: %w", field, value, err)
	}
	all := make([]*v1.KuryrPort, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}
