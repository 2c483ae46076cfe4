// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// keyOf returns the key of a node's pool, that which pods of any namespace get
// their ports from.
func keyOf(ctx context.Context, c *config.Config, node *corev1.Node, hosts sdn.Hosts) (v1.PoolKey, error) {
	s := pool.Settings{
		ProjectID: c.Pods.ProjectID, SubnetIDs: c.Pods.SubnetIDs,
		SecurityGroupIDs: c.Pods.SecurityGroupIDs, VIFType: c.Pods.VIFType,
	}
	m := sdn.Machine{ServerID: kube.NodeServer(node)}
	for i := range c.Nodes {
		selector, err := metav1.LabelSelectorAsSelector(c.Nodes[i].NodeSelector)
		if err != nil {
			return v1.PoolKey{}, fmt.Errorf("reading nodes[%d].nodeSelector: %w", i, err)
		}
		if selector.Matches(labels.Set(node.Labels)) {
			s.VIFType, m.SubnetIDs, m.ProjectID = c.Nodes[i].VIFType, c.Nodes[i].ParentSubnetIDs, c.Nodes[i].ParentProjectID
			if len(c.Nodes[i].SubnetIDs) > 0 {
				s.SubnetIDs = c.Nodes[i].SubnetIDs
			}
			break
		}
	}
	if config.Nested(s.VIFType) {
		m.Trunk = s.VIFType == config.VIFTypeVLAN
		id, err := sdn.ParentPortOfAny(ctx, hosts, m, kube.NodeAddresses(node))
		if err != nil {
			return v1.PoolKey{}, fmt.Errorf("looking for the machine of node %s: %w", node.Name, err)
		}
		s.ParentPortID = id
	}
	return pool.KeyOn(node.Name, s), nil
}
