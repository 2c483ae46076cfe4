// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package daemon is Kuryr's part on a node. It answers the CNI calls that
// kuryr-cni hands over: it waits for the KuryrPort that the controller binds to
// a pod, has it plugged, and waits for the data path. What is plugged it keeps
// in a journal on disk, which is all that a DEL needs: no API server and no
// SDN. It reports what is plugged in the KuryrPorts' status.attachment, behind
// the CNI calls' back.
//
// How a port is plugged is left to package plug, which ports there are to the
// controller. The daemon reads and writes KuryrPorts of its own node only.
//
// It also has the node pass on the host ports of its pods and, where Kuryr serves
// Services, their node ports and external IPs (packages nodeport and nft), and answers
// at their health check ports.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// api is the Kubernetes API, as far as the daemon needs it; *API is one.
type api interface {
	// KuryrPorts lists and watches those of the daemon's node.
	KuryrPorts() cache.ListerWatcher
	// Report sets status.attachment of a KuryrPort, or clears it if a is nil.
	Report(ctx context.Context, name string, a *v1.Attachment) (*v1.KuryrPort, error)
}

// drivers is what plugs ports; *plug.Set is one.
type drivers interface {
	Driver(typ string) (plug.Driver, error)
	// Ready says why no port can be plugged right now.
	Ready(ctx context.Context) error
	// Mend puts ports that sandboxes have back onto the node's switch, and returns those
	// that were off it.
	Mend(ctx context.Context, all []plug.Interface) ([]plug.Interface, error)
	// Collect takes away what is left of sandboxes that are not known.
	Collect(ctx context.Context, known func(containerID string) bool) error
}

// Options are what a daemon is made of.
type Options struct {
	Node     string // name of this node, as in KuryrPorts' spec.nodeName
	Settings config.Node
	Socket   string // that CNI calls come in on
	API      api
	Drivers  drivers
	Parking  parking // keeps free ports plugged, if Settings.Park; nil: none are
	// Tables pass on host ports and, while Services are served (see ServeServices),
	// node ports and external IPs. Without Tables nothing is passed on, and pods with
	// host ports are refused.
	Services services
	Tables   tables
	// HealthAddress serves /livez and /readyz, MetricsAddress /metrics; empty
	// or "0" is neither.
	HealthAddress, MetricsAddress string
	Install                       Install
}

// Daemon serves one node. Make one with New; Run may be called once.
type Daemon struct {
	Options
	journal   *journal
	ports     *ports
	reporter  *reporter
	parker    *parker
	nodePorts *nodePorts
	sandboxes locks // by containerID and interface: one call at a time
	byPort    locks // by port: one driver call at a time; taken after sandboxes
	netns     namespaces
	listens   func(p hostPortRecord, v6 bool) bool // whether something on the node itself does
	metrics   *metrics
	calls     sync.WaitGroup
	marked    chan struct{} // closed when what was left while away is known
}

// Times that nobody needs to configure.
const (
	undoTimeout  = 10 * time.Second // to take back a failed ADD
	delTimeout   = 30 * time.Second
	sweepPeriod  = 30 * time.Second
	readyTimeout = 2 * time.Second
	listenRetry  = 5 * time.Second  // where health or metrics cannot be served
	drainTimeout = 10 * time.Second // for calls under way when the daemon ends
)

// New opens the journal. Nothing runs yet.
func New(ctx context.Context, o Options) (*Daemon, error) {
	if o.Node == "" {
		return nil, errors.New("the node's name is missing")
	}
	j, err := openJournal(filepath.Join(o.Settings.StateDir, "attachments"), logr.FromContextOrDiscard(ctx))
	if err != nil {
		return nil, err
	}
	d := &Daemon{Options: o, journal: j, netns: osNamespaces{}, listens: listens, marked: make(chan struct{}), ports: newPorts(o.API.KuryrPorts())}
	d.reporter = newReporter(o.API, j, d.ports)
	d.parker = newParker(o, j, d.ports, &d.byPort)
	d.nodePorts = newNodePorts(o.Node, o.Settings.StateDir, o.Services, o.Tables, j.hostPorts)
	j.hostPortsChanged = d.nodePorts.wake
	d.metrics = newMetrics(j, d.parker)
	if o.Tables != nil {
		d.metrics.registry.MustRegister(d.nodePorts.collectors()...)
	}
	return d, nil
}

// ServeServices has the daemon serve Services from now on, or leave them alone, as
// it does at first: it reads none then, and passes on nothing for them. It may be
// called at any time.
func (d *Daemon) ServeServices(on bool) {
	if d.nodePorts.serve.Swap(on) != on {
		d.nodePorts.wake()
	}
}

// Run serves until ctx ends, and then until the calls under way are answered.
func (d *Daemon) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.ports.run(ctx, d.observe, d.gone) })
	g.Go(func() error { return d.reporter.run(ctx) })
	g.Go(func() error { return d.parker.run(ctx) })
	g.Go(func() error { return d.nodePorts.run(ctx) })
	g.Go(func() error { return d.serve(ctx) })
	g.Go(func() error { return d.sweepForever(ctx) })
	g.Go(func() error { return d.serveHTTP(ctx) })
	g.Go(func() error { return d.installOnceReady(ctx) })
	return g.Wait()
}

func (d *Daemon) observe(port *v1.KuryrPort) {
	d.reporter.observe(port)
	d.parker.observe(port)
}

func (d *Daemon) gone(port string) {
	d.reporter.gone(port)
	d.parker.gone(port)
}

// ready says why CNI calls cannot be served right now, as an error for STATUS.
func (d *Daemon) ready(ctx context.Context) error {
	if !d.ports.synced() {
		return errNotSynced
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := d.Drivers.Ready(ctx); err != nil {
		return fmt.Errorf("the data path is not ready: %w", err)
	}
	return nil
}
