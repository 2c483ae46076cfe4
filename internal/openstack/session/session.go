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
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// Config says how to reach a cloud, and how much to ask of it. All fields except ClusterID may be
// zero.
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
	// CacheAge bounds how old the details of a subnet or network may be, the list of Octavia's
	// providers, its version, and a catalogue that lacks a service; 0 is 10 min.
	CacheAge time.Duration
	// LoadBalancerAPI is which API serves load balancers: OctaviaAPI, which is also the
	// empty one, or LBaaSv2API.
	LoadBalancerAPI string
	// Fence is asked before each request that may change something; nil admits all.
	Fence Fence
	// Metrics takes kuryr_cloud_*; nil keeps them to oneself.
	Metrics prometheus.Registerer
}

// Fence says whether this process may change something in the cloud. While it does not, only GETs are
// sent, and logins; other requests are an sdn.ErrFenced.
type Fence interface {
	// Admits reports whether a request may be begun now. It must not wait.
	Admits() bool
}

// The APIs that load balancers may be served by.
const (
	// OctaviaAPI is the load-balancer service of the catalogue.
	OctaviaAPI = "octavia"
	// LBaaSv2API is Neutron itself, as before Octavia, or with a plugin that still does.
	LBaaSv2API = "lbaasv2"
)

func (c Config) withDefaults() Config {
	c.RequestTimeout = cmp.Or(c.RequestTimeout, time.Minute)
	c.RequestsPerSecond = cmp.Or(c.RequestsPerSecond, 20)
	c.MaxConcurrent = cmp.Or(c.MaxConcurrent, 8)
	c.PageSize = cmp.Or(c.PageSize, 500)
	c.CacheAge = cmp.Or(c.CacheAge, 10*time.Minute)
	return c
}

// Client sends requests to the services of one cloud with one credential. It is safe
// for concurrent use.
type Client struct {
	Config           Config
	login            *login
	throttle         *throttle // Neutron's
	balancerThrottle *throttle // Octavia's
}

// New returns a client. It reads the credential but asks nothing of the cloud:
// the first request logs in.
func New(c Config) (*Client, error) {
	c = c.withDefaults()
	l := newLogin(c.Cloud, c.CloudsFile, c.RequestTimeout, newMetrics(c.Metrics), "")
	if _, err := l.credential(); err != nil {
		return nil, fmt.Errorf("reading the OpenStack credential: %w", err)
	}
	return &Client{
		Config: c, login: l,
		throttle:         newThrottle(neutron, c),
		balancerThrottle: newThrottle(Octavia, c),
	}, nil
}

// As returns a client with another entry of clouds.yaml, which has to be a credential of that
// project, and of b's region: another login is refused. It shares limits and metrics with b, as the cloud is
// the same. It reads nothing yet: a missing entry is an error of the first request.
func (b *Client) As(cloud, projectID string) *Client {
	other := *b
	other.Config.Cloud = cloud
	other.login = newLogin(cloud, b.login.file, b.login.timeout, b.login.metrics, projectID)
	other.login.main = b.login
	return &other
}

// SetShare limits b, and all clients that As made of it or of its origin, to a part of the configured
// limits, from 0 to 1, because other processes send requests to the same cloud. It is 1 at first. With 0 a
// client still sends a few requests, one at a time.
func (b *Client) SetShare(share float64) {
	b.throttle.setShare(share)
	b.balancerThrottle.setShare(share)
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

// sendPatience is for how long the kernel tries to deliver what was sent. Its default is a quarter of an
// hour: after a network fault of minutes, requests that Kuryr gave up long ago would still be carried out.
const sendPatience = 10 * time.Second

// dialer makes connections that deliver no old requests: see sendPatience. A closed one drops what it
// has not delivered. The times are those of http.DefaultTransport.
var dialer = &net.Dialer{
	Timeout: 30 * time.Second, KeepAlive: 30 * time.Second,
	Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(sendPatience.Milliseconds())),
				unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
			)
		})
		return errors.Join(failed, err)
	},
}
