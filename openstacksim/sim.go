// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package openstacksim is an OpenStack for tests: Keystone v3, Neutron v2.0 and
// Octavia v2 over HTTP, in memory, started in milliseconds, exactly repeatable, and
// failing on demand. Any client of OpenStack uses it unchanged.
//
// # Start
//
// In a test [Start] listens on a free port until the test ends:
//
//	cloud := openstacksim.Start(t)
//	login := cloud.ClientConfig()  // URL, user, password, project: what a client logs in with
//	file := cloud.CloudsFile(t)    // the same as a clouds.yaml, for OS_CLIENT_CONFIG_FILE
//
// Elsewhere [New] makes a [Cloud], which is an [http.Handler], and the caller
// listens at [Options].URL. The command openstack-sim does that in a process of its
// own, for clients that are not written in Go.
//
// # What is simulated
//
// Keystone: tokens, projects, users, roles, application credentials, the catalogue.
// Neutron: networks, subnets and their pools, ports, security groups, address groups,
// routers, floating IPs, trunks, tags, quotas. Octavia: load balancers with listeners,
// pools, members, health monitors and L7 policies, of the providers ovn and amphora.
// Status codes, bodies and error texts are those of Keystone 22.0.2, Neutron 21.0.0
// with ML2/OVN, and Octavia 11.0.0: exchanges recorded with these are replayed on
// the simulator in its own tests. Other services can be added: see [Service].
//
// [Cloud.Dial] makes calls slow or makes them fail; package dial has the rules.
// [Options].Before and After cut a client off around any call. [Cloud.Calls],
// [Cloud.Count] and [Cloud.Objects] say what was asked and what exists.
//
// # What is not
//
// No packet is ever passed: a port becomes ACTIVE because it is bound and time
// passes, or because [Cloud.Plug] says so. There is no Nova, Glance or Cinder. Of
// Keystone, trusts, groups, federation, OAuth and TOTP are missing. Nothing is kept
// on disk, and everybody who reaches the listener is an administrator.
//
// # Stability
//
// The package has no tagged release yet: names may change, and CHANGELOG.md of the
// repository says so when they do. It imports the standard library and
// go.yaml.in/yaml/v4 only.
package openstacksim

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/dial"
	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
	"github.com/kuryr-go/kuryr/openstacksim/internal/neutron"
	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

// Defaults of Options.
const (
	Password = "secret"  // of all users
	Lifetime = time.Hour // of a token; keystone 22.0.2: conf/token.py
)

// Releases are the releases of OpenStack that a Cloud can be, the default first. Neutron and Octavia
// with its provider ovn answer as theirs: diff -r of the two folders in internal/recorded/testdata
// shows what differs. Keystone answers as Zed's, of which 2025.1 differs in no recorded answer. Of
// amphora nothing of 2025.1 is recorded; it follows the code.
var Releases = []string{"zed", "2025.1"}

// Options of a Cloud. Only URL has to be given, and to Start not even that.
type Options struct {
	URL      string        // where clients reach it, without a slash at the end
	Seed     uint64        // seed of IDs and of the dials' choices
	Dials    *dial.Set     // nil: none
	Password string        // of the users; default Password
	Lifetime time.Duration // of a token; default Lifetime
	Hosts    []string      // nodes that ports can be bound to; default node1
	// OVS are those of Hosts with neutron-openvswitch-agent in place of OVN, and whether its firewall
	// driver is iptables_hybrid.
	OVS   map[string]bool
	Quota map[string]int // by resource, as in {"port": 10}: of each project; -1: no limit; default Neutron's
	// Policy replaces Neutron's access rules by name, as policy.yaml does: a cloud may let others than
	// administrators bind ports ("create_port:binding:host_id": "role:member").
	Policy  map[string]string
	Amphora bool   // Octavia's provider amphora, beside ovn
	Release string // one of Releases, as which Neutron and Octavia answer; default the first
	// LBaaSv2 makes Neutron itself serve load balancers, as before Octavia. There is no Octavia
	// then.
	LBaaSv2 bool
	Keep    int              // how many calls the log shows one by one; default 10,000. All are counted
	Now     func() time.Time // of tokens, of timestamps and of the log; default time.Now
	Log     *slog.Logger     // faults of the simulator itself; default slog.Default

	// Services are additional services of the Cloud. Close does not close them.
	Services []Service

	// Before is called before the effect of each call, After after it and before the answer. An
	// error breaks the connection: the client sees what it would see of a cloud that died there.
	// Calls are concurrent, so Before and After may be, too.
	Before, After func(Call) error
	// Stop is called, once, when a dial ends the process. nil: the connection breaks, and the cloud
	// continues.
	Stop func(rule string)
}

// Cloud is an OpenStack. It may be used by many goroutines at once.
type Cloud struct {
	o       Options
	panel   *dial.Panel
	log     *log
	workers workers
	ids     *source // source of the services' IDs
	calls   *source // source of request IDs, so that reads do not change later IDs
	timers  *timers
	stopped atomic.Bool

	identity *keystone.Service
	neutron  *neutron.Service
	octavia  *octavia.Service
	network  api
	balancer api
	lbaas    api // nil: Neutron serves no load balancers

	tenants tenants

	added   map[string]api // Options.Services by type
	types   []string       // of added
	places  []place
	catalog []keystone.Catalog
}

// api is a service that knows its caller.
type api interface {
	Handle(w http.ResponseWriter, r *http.Request, who keystone.Caller)
}

// New returns a Cloud with the projects, users and roles of a new OpenStack, without networks and
// load balancers. It does not listen: it is an http.Handler. Close ends it.
func New(o Options) (*Cloud, error) {
	o.URL = strings.TrimSuffix(o.URL, "/")
	o.Password, o.Lifetime = cmp.Or(o.Password, Password), cmp.Or(o.Lifetime, Lifetime)
	if !strings.HasPrefix(o.URL, "http://") && !strings.HasPrefix(o.URL, "https://") {
		return nil, fmt.Errorf("making a cloud: %q is no URL: write it as in http://127.0.0.1:5000", o.URL)
	}
	if o.Release = cmp.Or(o.Release, Releases[0]); !slices.Contains(Releases, o.Release) {
		return nil, fmt.Errorf("making a cloud: no release %q: write one of %s", o.Release, strings.Join(Releases, ", "))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Hosts) == 0 {
		o.Hosts = []string{"node1"}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Cloud{o: o, panel: dial.NewPanel(o.Seed), log: newLog(cmp.Or(o.Keep, 10_000)), ids: newSource(o.Seed, 1), calls: newSource(o.Seed, 2)}
	if err := c.add(o.Services); err != nil {
		return nil, fmt.Errorf("making a cloud: %w", err)
	}
	c.timers = newTimers(o.Log)
	c.SetDials(cmp.Or(o.Dials, &dial.Set{}))
	c.identity = keystone.New(keystone.Options{
		URL: o.URL + identityPath, Password: o.Password, Lifetime: o.Lifetime, NewID: newSource(o.Seed, 3).UUID, Now: o.Now,
		Services: c.catalog,
	})
	c.makeServices()
	return c, nil
}

// SetDials replaces the dials by s and resets all counters.
func (c *Cloud) SetDials(s *dial.Set) {
	c.panel.Set(s)
	c.workers.set(s.Workers)
}

// Dial adds one line, as --dial takes it: "network POST /v2.0/ports: [ok, lost]". It comes before
// the other dials, and all counters are reset. A service of Options.Services is named by its type.
func (c *Cloud) Dial(line string) error {
	s, err := c.panel.Current().Add(line, c.types...)
	if err != nil {
		return fmt.Errorf("dialling %q: %w", line, err)
	}
	c.SetDials(s)
	return nil
}

// URL is where clients reach the cloud.
func (c *Cloud) URL() string { return c.o.URL }

// Project returns the ID of the project of that name in domain Default; false if there is none.
func (c *Cloud) Project(name string) (id string, ok bool) { return c.identity.Project(name) }

// RevokeTokens makes all tokens invalid, as if they had expired: clients have to log
// in again.
func (c *Cloud) RevokeTokens() { c.identity.RevokeAll() }

// Close cancels all pending changes and waits for the running ones. Waiting calls end without an
// answer. It may be called again.
func (c *Cloud) Close() { c.timers.close() }

// stop ends the process, once.
func (c *Cloud) stop(rule string) {
	if c.o.Stop != nil && c.stopped.CompareAndSwap(false, true) {
		c.o.Stop(rule)
	}
}
