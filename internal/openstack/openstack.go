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
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr-go/kuryr/internal/openstack/neutron"
	"github.com/kuryr-go/kuryr/internal/openstack/octavia"
	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Config describes the access to the cloud. All fields except ClusterID may be zero.
type Config struct {
	// ClusterID is the mark of this cluster's resources: letters, digits, dots, dashes and
	// underscores, at most 64.
	ClusterID string
	// Cloud is the entry of clouds.yaml that holds the credential; empty is
	// OS_CLOUD, and without that OS_AUTH_URL and its kin.
	Cloud string
	// CloudsFile is the path of clouds.yaml; empty is where OpenStack's clients
	// look: OS_CLIENT_CONFIG_FILE, ., ~/.config/openstack, /etc/openstack. It is
	// read again at each login, so a changed credential needs no restart.
	CloudsFile string
	// RequestTimeout bounds each HTTP request, and the wait for leave to send
	// it; 0 is 60 s.
	RequestTimeout time.Duration
	// RequestsPerSecond is the most that is sent to a service that is well; 0 is 20.
	RequestsPerSecond float64
	// MaxConcurrent requests to a service are on their way at once; 0 is 8.
	MaxConcurrent int
	// PageSize is how many objects one request lists; 0 is 500.
	PageSize int
	// CacheAge bounds how old the details of a subnet or network may be; 0 is 10 min.
	CacheAge time.Duration
	// LoadBalancerAPI is which API serves load balancers: Octavia, which is also the
	// empty one, or LBaaSv2.
	LoadBalancerAPI string
	// Metrics takes kuryr_cloud_*; nil keeps them to oneself.
	Metrics prometheus.Registerer
}

// The APIs that load balancers may be served by.
const (
	// Octavia is the load-balancer service of the catalogue.
	Octavia = "octavia"
	// LBaaSv2 is Neutron itself, as before Octavia, or with a plugin that still does.
	LBaaSv2 = "lbaasv2"
)

func (c Config) withDefaults() Config {
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = time.Minute
	}
	if c.RequestsPerSecond <= 0 {
		c.RequestsPerSecond = 20
	}
	if c.MaxConcurrent <= 0 {
		c.MaxConcurrent = 8
	}
	if c.PageSize <= 0 {
		c.PageSize = 500
	}
	if c.CacheAge <= 0 {
		c.CacheAge = 10 * time.Minute
	}
	return c
}

// Backend is one cluster's view of one cloud. Its two parts share a session, and with
// it the credential and the limits. It is safe for concurrent use.
type Backend struct {
	*neutron.Neutron
	*octavia.Octavia

	config Config
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
	c = c.withDefaults()
	if !clusterIDForm.MatchString(c.ClusterID) {
		return nil, fmt.Errorf("cluster ID %q: want 1 to 64 letters, digits, dots, dashes or underscores", c.ClusterID)
	}
	if !slices.Contains([]string{"", Octavia, LBaaSv2}, c.LoadBalancerAPI) {
		return nil, fmt.Errorf("load-balancing API %q: want %s or %s", c.LoadBalancerAPI, Octavia, LBaaSv2)
	}
	s, err := session.New(session.Config{
		Cloud: c.Cloud, CloudsFile: c.CloudsFile, RequestTimeout: c.RequestTimeout, RequestsPerSecond: c.RequestsPerSecond,
		MaxConcurrent: c.MaxConcurrent, PageSize: c.PageSize, CacheAge: c.CacheAge, Metrics: c.Metrics,
	})
	if err != nil {
		return nil, err
	}
	return newBackend(s, c), nil
}

func newBackend(s *session.Client, c Config) *Backend {
	return &Backend{
		Neutron: neutron.New(s, neutron.Config{ClusterID: c.ClusterID, RequestTimeout: c.RequestTimeout, CacheAge: c.CacheAge}),
		Octavia: octavia.New(s, octavia.Config{
			ClusterID: c.ClusterID, LBaaSv2: c.LoadBalancerAPI == LBaaSv2, RequestTimeout: c.RequestTimeout, CacheAge: c.CacheAge,
		}),
		config: c, client: s,
	}
}

// As returns the same cluster's view of the same cloud with another entry of clouds.yaml, which has
// to be a credential of that project: otherwise all calls are sdn.ErrLogin. The two share limits and
// metrics. It reads nothing yet.
func (b *Backend) As(cloud, projectID string) *Backend {
	return newBackend(b.client.As(cloud, projectID), b.config)
}
