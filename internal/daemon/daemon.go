// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package daemon is Kuryr's part on a node. It answers the CNI calls that kuryr-cni sends: it waits
// for the KuryrPort that the controller binds to a pod, plugs the port, and waits for the data
// path. A journal on disk records what is plugged. A DEL needs only the journal: no API server and
// no SDN. Outside of CNI calls the daemon reports plugged ports in status.attachment of the
// KuryrPorts.
//
// Package plug plugs ports; the controller decides which ports exist. The daemon reads and writes
// KuryrPorts of its own node only.
//
// The daemon also makes the node forward the host ports of its pods. If Kuryr serves Services, the
// daemon does the same for their node ports and external IPs (packages nodeport and nft), and answers
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
	"github.com/puzpuzpuz/xsync/v4"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/keylock"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// api is the part of the Kubernetes API that the daemon needs. *API implements it.
type api interface {
	// KuryrPorts lists and watches the KuryrPorts of the daemon's node.
	KuryrPorts() cache.ListerWatcher
	// Report sets status.attachment of a KuryrPort, or clears it if a is nil.
	Report(ctx context.Context, name string, a *v1.Attachment) error
}

// drivers plugs ports. *plug.Set implements it.
type drivers interface {
	Driver(typ string) (plug.Driver, error)
	// Ready returns an error if no port can be plugged now.
	Ready(ctx context.Context) error
	// Mend connects ports of sandboxes to the node's switch again, and returns those that were
	// missing there.
	Mend(ctx context.Context, all []plug.Interface) ([]plug.Interface, error)
	// Collect removes what is left of unknown sandboxes.
	Collect(ctx context.Context, known func(containerID string) bool) error
}

// Options are the parts and settings of a daemon.
type Options struct {
	Node     string // name of this node, as in KuryrPorts' spec.nodeName
	Settings config.Node
	Socket   string // the socket for CNI calls
	API      api
	Drivers  drivers
	Parking  parking // keeps free ports plugged, if Settings.Park
	// Tables forwards host ports and, while Services are served (see ServeServices), node ports
	// and external IPs. If it is nil, nothing is forwarded, and pods with host ports are refused.
	Services services
	Tables   tables
	// HealthAddress serves /livez and /readyz, MetricsAddress /metrics. Empty or "0" disables it.
	HealthAddress, MetricsAddress string
	Install                       Install
}

// Daemon serves one node. New makes one; Run may be called once.
type Daemon struct {
	Options
	journal   *journal
	ports     *ports
	reporter  *reporter
	parker    *parker
	nodePorts *nodePorts
	sandboxes keylock.Locks[string] // by containerID and interface: one call at a time
	byPort    keylock.Locks[string] // by port: one driver call at a time; taken after sandboxes
	netns     namespaces
	listens   func(p cni.HostPort, v6 bool) bool // whether a program on the node itself listens
	metrics   *metrics
	calls     sync.WaitGroup
	marked    chan struct{} // closed once the DELs left during the daemon's absence are known
}

// Times that need no configuration.
const (
	undoTimeout  = 10 * time.Second // to undo a failed ADD
	delTimeout   = 30 * time.Second
	sweepPeriod  = 30 * time.Second
	readyTimeout = 2 * time.Second
	listenRetry  = 5 * time.Second  // before another try to listen for health or metrics
	installRetry = 2 * time.Second  // before another try to install CNI
	drainTimeout = 10 * time.Second // for calls in progress when the daemon ends
)

// New opens the journal. It starts nothing yet.
func New(ctx context.Context, o Options) (*Daemon, error) {
	if o.Node == "" {
		return nil, errors.New("the node's name is missing")
	}
	j, err := openJournal(filepath.Join(o.Settings.StateDir, "attachments"), logr.FromContextOrDiscard(ctx))
	if err != nil {
		return nil, err
	}
	d := &Daemon{Options: o, journal: j, netns: osNamespaces{}, listens: listens, marked: make(chan struct{}), ports: newPorts(o.API.KuryrPorts())}
	d.reporter = &reporter{api: o.API, journal: j, ports: d.ports, queue: newPortQueue(200*time.Millisecond, 30*time.Second)}
	d.parker = &parker{
		parking: o.Parking, wanted: o.Settings.Park, journal: j, ports: d.ports, byPort: &d.byPort,
		queue: newPortQueue(time.Second, time.Minute), parked: xsync.NewMap[string, parked](),
	}
	d.nodePorts = newNodePorts(o.Node, o.Settings.StateDir, o.Services, o.Tables, j.hostPorts)
	j.hostPortsChanged = d.nodePorts.wake
	d.metrics = newMetrics(j, d.parker)
	if o.Tables != nil {
		d.metrics.registry.MustRegister(d.nodePorts.collectors()...)
	}
	return d, nil
}

// ServeServices switches serving Services on or off; at first it is off. While it is off, the
// daemon reads no Services and forwards nothing for them. It may be called at any time.
func (d *Daemon) ServeServices(on bool) {
	if d.nodePorts.serve.Swap(on) != on {
		d.nodePorts.wake()
	}
}

// Run serves until ctx ends, and then until the running calls are answered.
func (d *Daemon) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	observe := func(port *v1.KuryrPort) {
		d.reporter.observe(port)
		d.parker.observe(port)
	}
	g.Go(func() error { return d.ports.run(ctx, observe, d.parker.gone) })
	g.Go(func() error { d.reporter.queue.run(ctx, "reporting an attachment", d.reporter.sync); return nil })
	g.Go(func() error { return d.parker.run(ctx) })
	g.Go(func() error { return d.nodePorts.run(ctx) })
	g.Go(func() error { return d.serve(ctx) })
	g.Go(func() error { return d.sweepForever(ctx) })
	g.Go(func() error { return d.serveHTTP(ctx) })
	g.Go(func() error { return d.installOnceReady(ctx) })
	return g.Wait()
}

// ready returns why CNI calls cannot be served now, as an error for STATUS.
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
