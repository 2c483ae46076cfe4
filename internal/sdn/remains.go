// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"context"
	"time"
)

// Remains lists what a cluster that does not exist any more has left.
type Remains interface {
	// Marked returns all resources with this cluster's mark that the credential sees, of all kinds, in
	// no order.
	Marked(ctx context.Context) ([]Remnant, error)
}

// RemnantKind is a kind of resource, in words.
type RemnantKind string

// The kinds of resources that carry a mark.
const (
	RemnantLoadBalancer  RemnantKind = "load balancer"
	RemnantFloatingIP    RemnantKind = "floating IP"
	RemnantPort          RemnantKind = "port"
	RemnantNetwork       RemnantKind = "network"
	RemnantSubnet        RemnantKind = "subnet"
	RemnantRouter        RemnantKind = "router"
	RemnantSecurityGroup RemnantKind = "security group"
)

// Remnant is a resource with a mark.
type Remnant struct {
	Kind      RemnantKind
	ID, Name  string
	Owner     Owner
	ProjectID string
	Changed   time.Time // or created; zero if the backend does not tell
}
