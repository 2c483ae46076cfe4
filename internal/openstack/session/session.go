// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package session sends requests to the services of an OpenStack cloud. It logs in, limits the load
// on a service, counts, reads lists page by page, and converts answers into the seam's errors. It
// alone imports gophercloud. It also writes and reads the mark that names the owner of a resource.
//
// The packages neutron and octavia know the requests and answers.
//
// A creating request whose answer is lost is never repeated: its result carries the mark, and is
// collected as an orphan. A repeatable request is repeated once if its connection was closed.
package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config says how to reach a cloud, and how much to ask of it.
type Config struct {
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

// Client sends requests to the services of one cloud with one credential. It is safe
// for concurrent use.
type Client struct {
	config           Config
	login            *login
	throttle         *throttle // Neutron's
	balancerThrottle *throttle // Octavia's
}

// New returns a client. It reads the credential but asks nothing of the cloud:
// the first request logs in.
func New(c Config) (*Client, error) {
	m, err := newMetrics(c.Metrics)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	l := newLogin(c.Cloud, c.CloudsFile, c.RequestTimeout, m, "")
	if _, err := l.credential(); err != nil {
		return nil, fmt.Errorf("reading the OpenStack credential: %w", err)
	}
	b := &Client{
		config: c, login: l,
		throttle:         newThrottle(neutron, c, portShare),
		balancerThrottle: newThrottle(Octavia, c, balancerShare),
	}
	if err := errors.Join(b.throttle.gauges.register(c.Metrics), b.balancerThrottle.gauges.register(c.Metrics)); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return b, nil
}

// As returns a client with another entry of clouds.yaml, which has to be a credential of that
// project, and of b's region: another login is refused. It shares limits and metrics with b, as the cloud is
// the same. It reads nothing yet: a missing entry is an error of the first request.
func (b *Client) As(cloud, projectID string) *Client {
	other := *b
	other.config.Cloud = cloud
	other.login = newLogin(cloud, b.login.file, b.login.timeout, b.login.metrics, projectID)
	other.login.main = b.login
	return &other
}

// Project returns the project of the credential's token. It is empty if the token has none, or if
// the login itself used a token with unknown project.
func (b *Client) Project(ctx context.Context) (string, error) {
	s, err := b.login.session(ctx, nil)
	if err != nil {
		return "", err
	}
	return s.project, nil
}

// ProjectOr returns the project that an ID means. Empty is that of the credential's token.
func (b *Client) ProjectOr(ctx context.Context, id string) (string, error) {
	if id != "" {
		return id, nil
	}
	return b.Project(ctx)
}
