// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sessionConfig says how to reach a cloud, and how much to ask of it.
type sessionConfig struct {
	// Cloud and CloudsFile name the credential.
	Cloud, CloudsFile string
	// RequestTimeout bounds each HTTP request, and the wait for leave to send it.
	RequestTimeout time.Duration
	// RequestsPerSecond is the most that is sent to a service that is well.
	RequestsPerSecond float64
	// MaxConcurrent requests to a service are on their way at once.
	MaxConcurrent int
	// PageSize is how many objects one request lists.
	PageSize int
	// CacheAge is how old a catalogue may be that lacks a service.
	CacheAge time.Duration
	// Metrics takes kuryr_cloud_*; nil keeps them to oneself.
	Metrics prometheus.Registerer
}

// client sends requests to the services of one cloud with one credential. It is safe
// for concurrent use.
type client struct {
	config          sessionConfig
	login           *login
	limiter         *limiter // Neutron's
	balancerLimiter *limiter // Octavia's
}

// newClient returns a client. It reads the credential but asks nothing of the cloud:
// the first request logs in.
func newClient(c sessionConfig) (*client, error) {
	m, err := newMetrics(c.Metrics)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	l := &login{cloud: c.Cloud, file: c.CloudsFile, timeout: c.RequestTimeout, metrics: m}
	if _, err := l.credential(); err != nil {
		return nil, fmt.Errorf("reading the OpenStack credential: %w", err)
	}
	b := &client{
		config: c, login: l,
		limiter:         newLimiter(c.RequestsPerSecond, c.MaxConcurrent, c.RequestTimeout, portShare),
		balancerLimiter: newLimiter(c.RequestsPerSecond, c.MaxConcurrent, c.RequestTimeout, balancerShare),
	}
	b.limiter.report = m.rate.Set
	b.limiter.report(c.RequestsPerSecond)
	b.balancerLimiter.report = m.balancerRate.Set
	b.balancerLimiter.report(c.RequestsPerSecond)
	return b, nil
}

// project returns the project of the credential's token; empty if it is of none, or
// the login was with a token, whose project nobody told.
func (b *client) project(ctx context.Context) (string, error) {
	s, err := b.login.session(ctx, nil)
	if err != nil {
		return "", err
	}
	return s.project, nil
}

// aged is a value that the cloud has told, and when.
type aged[T any] struct {
	value T
	read  time.Time
}
