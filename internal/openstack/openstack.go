// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package openstack is the seam's backend for OpenStack. It checks the configuration and connects
// its parts: session sends requests and interprets answers, neutron handles ports, security groups
// and floating IPs, octavia handles load balancers.
package openstack

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/kuryr-go/kuryr/internal/openstack/neutron"
	"github.com/kuryr-go/kuryr/internal/openstack/octavia"
	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Config describes the access to the cloud.
type Config = session.Config

// Fence says whether this process may change something in the cloud: see session.Fence.
type Fence = session.Fence

// The APIs that load balancers may be served by.
const (
	Octavia = session.OctaviaAPI
	LBaaSv2 = session.LBaaSv2API
)

// Backend is one cluster's view of one cloud. Its two parts share a session, and with
// it the credential and the limits. It is safe for concurrent use.
type Backend struct {
	*neutron.Neutron
	*octavia.Octavia

	client *session.Client
}

var (
	_ sdn.Backend   = (*Backend)(nil)
	_ sdn.Survey    = (*Backend)(nil)
	_ sdn.Installer = (*Backend)(nil)
)

var clusterIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// New returns a backend. It reads the credential but sends no request: the first call logs in, so
// an unreachable cloud does not prevent the start.
func New(_ context.Context, c Config) (*Backend, error) {
	if !clusterIDForm.MatchString(c.ClusterID) {
		return nil, fmt.Errorf("cluster ID %q: want 1 to 64 letters, digits, dots, dashes or underscores", c.ClusterID)
	}
	if !slices.Contains([]string{"", Octavia, LBaaSv2}, c.LoadBalancerAPI) {
		return nil, fmt.Errorf("load-balancing API %q: want %s or %s", c.LoadBalancerAPI, Octavia, LBaaSv2)
	}
	s, err := session.New(c)
	if err != nil {
		return nil, err
	}
	return newBackend(s), nil
}

func newBackend(s *session.Client) *Backend { return &Backend{neutron.New(s), octavia.New(s), s} }

// As returns the same cluster's view of the same cloud with another entry of clouds.yaml, which has
// to be a credential of that project: otherwise all calls are sdn.ErrLogin. The two share limits and
// metrics. It reads nothing yet.
func (b *Backend) As(cloud, projectID string) *Backend {
	return newBackend(b.client.As(cloud, projectID))
}

// SetShare limits b, and all that share its limits, to a part of them, from 0 to 1: other processes send
// requests to the same cloud. It is 1 at first. With 0 a few requests are still sent, one at a time.
func (b *Backend) SetShare(share float64) { b.client.SetShare(share) }
