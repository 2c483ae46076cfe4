// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plug"
)

var errAway = errors.New("connection refused")

// server is a Kubernetes API server that holds KuryrPorts of one node.
type server struct {
	mu       sync.Mutex
	down     bool
	version  int
	objects  map[string]*v1.KuryrPort
	watchers map[*watch.RaceFreeFakeWatcher]bool
	reports  int
}

func newServer() *server {
	return &server{objects: map[string]*v1.KuryrPort{}, watchers: map[*watch.RaceFreeFakeWatcher]bool{}}
}

func (s *server) KuryrPorts() cache.ListerWatcher {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return s.list() },
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.watch(o.ResourceVersion)
		},
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, s)
}

// IsWatchListSemanticsUnSupported makes the informer list first.
func (s *server) IsWatchListSemanticsUnSupported() bool { return true }

func (s *server) list() (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errAway
	}
	list := &v1.KuryrPortList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, o := range s.objects {
		list.Items = append(list.Items, *o.DeepCopy())
	}
	return list, nil
}

func (s *server) watch(from string) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errAway
	}
	if from != strconv.Itoa(s.version) {
		return nil, apierrors.NewResourceExpired("list again")
	}
	w := watch.NewRaceFreeFake()
	s.watchers[w] = true
	return w, nil
}

// setDown makes the API unavailable, or available again.
func (s *server) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	for w := range s.watchers {
		w.Stop()
		delete(s.watchers, w)
	}
}

func (s *server) put(p *v1.KuryrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(p)
}

func (s *server) store(p *v1.KuryrPort) {
	_, there := s.objects[p.Name]
	s.version++
	p = p.DeepCopy()
	p.ResourceVersion = strconv.Itoa(s.version)
	s.objects[p.Name] = p
	for w := range s.watchers {
		if there {
			w.Modify(p.DeepCopy())
		} else {
			w.Add(p.DeepCopy())
		}
	}
}

// change changes a port as the controller or a person does.
func (s *server) change(name string, alter func(*v1.KuryrPort)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.objects[name].DeepCopy()
	alter(p)
	s.store(p)
}

func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	p := s.objects[name]
	delete(s.objects, name)
	for w := range s.watchers {
		w.Delete(p.DeepCopy())
	}
}

func (s *server) Report(_ context.Context, name string, a *v1.Attachment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errAway
	}
	s.reports++
	p := s.objects[name]
	if p == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "kuryrports"}, name)
	}
	p = p.DeepCopy()
	p.Status.Attachment = a
	s.store(p)
	return nil
}

// attachment returns the container ID in the API's attachment of a port, or "".
func (s *server) attachment(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.objects[name]; p != nil && p.Status.Attachment != nil {
		return p.Status.Attachment.ContainerID
	}
	return ""
}

// machine is the node as the driver sees it: which port is plugged where. It outlives the daemons
// that run on it.
type machine struct {
	mu      sync.Mutex
	plugged map[string]plug.Interface // by port
	live    map[string]bool           // network namespaces
	unwired map[string]bool           // ports whose Wait does not return
	fail    map[string]error          // by step
	rows    map[string]bool           // containers with a port on the switch, but without a device
	parked  map[string]bool           // ports that wait for a pod; false: incomplete
	off     map[string]bool           // ports that were removed from the switch
	lent    map[string]bool           // ports that a pod got from the parking
	counts  plug.Counts
	calls   []string
	hook    func(step string) // called in every step of the driver
}

func newMachine() *machine {
	return &machine{plugged: map[string]plug.Interface{}, live: map[string]bool{}, unwired: map[string]bool{}, fail: map[string]error{}, rows: map[string]bool{}, parked: map[string]bool{}, off: map[string]bool{}, lent: map[string]bool{}}
}

func (m *machine) set(f func()) { m.mu.Lock(); defer m.mu.Unlock(); f() }

// where returns the container that has the port, or "".
func (m *machine) where(port string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plugged[port].ContainerID
}

func (m *machine) count(step string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.calls {
		if c == step {
			n++
		}
	}
	return n
}

func (m *machine) gone(path string) bool { m.mu.Lock(); defer m.mu.Unlock(); return !m.live[path] }
func (m *machine) own(path string) bool  { return path == ownNetns }

const ownNetns = "/proc/1/ns/net"

// driver is the driver of one daemon. After kill its calls never return. That is how a killed
// process looks from outside.
type driver struct {
	*machine
	dead atomic.Bool
}

func (d *driver) Driver(typ string) (plug.Driver, error) {
	if typ == "unknown" {
		return nil, fmt.Errorf("%q: %w", typ, plug.ErrUnknownType)
	}
	return d, nil
}

func (d *driver) Ready(context.Context) error { return d.step("ready") }

func (d *driver) Collect(_ context.Context, known func(string) bool) error {
	d.set(func() { maps.DeleteFunc(d.rows, func(c string, _ bool) bool { return !known(c) }) })
	return d.step("collect")
}

// Mend restores the ports that are missing on the switch.
func (d *driver) Mend(_ context.Context, all []plug.Interface) (mended []plug.Interface, _ error) {
	d.set(func() {
		for _, i := range all {
			if d.off[i.PortID] {
				delete(d.off, i.PortID)
				mended = append(mended, i)
			}
		}
	})
	return mended, d.step("mend")
}

func (d *driver) step(name string) error {
	d.mu.Lock()
	d.calls = append(d.calls, name)
	hook, err := d.hook, d.fail[name]
	d.mu.Unlock()
	if hook != nil && name != "ready" {
		hook(name)
	}
	if d.dead.Load() {
		select {}
	}
	return err
}

func (d *driver) Plug(ctx context.Context, i plug.Interface) error {
	if err := d.step("plug"); err != nil {
		return err
	}
	if d.machine.gone(i.Netns) {
		return fmt.Errorf("%s: %w", i.Netns, plug.ErrNoNetns)
	}
	d.set(func() {
		switch {
		case d.parked[i.PortID]:
			d.lent[i.PortID] = true
			d.counts.Claimed++
		case d.plugged[i.PortID].ContainerID != i.ContainerID:
			delete(d.lent, i.PortID)
			d.counts.Made++
		}
		delete(d.parked, i.PortID)
		d.plugged[i.PortID] = i
	})
	return errors.Join(ctx.Err(), d.step("plugged"))
}

func (d *driver) Wait(ctx context.Context, i plug.Interface) error {
	if err := d.step("wait"); err != nil {
		return err
	}
	d.mu.Lock()
	stuck := d.unwired[i.PortID]
	d.mu.Unlock()
	if stuck {
		<-ctx.Done()
		return fmt.Errorf("port %s: %w: %w", i.PortID, plug.ErrNotWired, ctx.Err())
	}
	return d.step("wired")
}

func (d *driver) Unplug(_ context.Context, i plug.Interface) error {
	if err := d.step("unplug"); err != nil {
		return err
	}
	d.set(func() {
		if d.plugged[i.PortID].ContainerID == i.ContainerID {
			delete(d.plugged, i.PortID)
			if d.lent[i.PortID] {
				delete(d.lent, i.PortID)
				d.parked[i.PortID] = true
			}
		}
	})
	return d.step("unplugged")
}

func (d *driver) Check(_ context.Context, i plug.Interface) error {
	if d.where(i.PortID) != i.ContainerID {
		return errors.New("the interface is gone")
	}
	return d.step("check")
}

func (d *driver) Park(_ context.Context, i plug.Interface) error {
	d.set(func() {
		if d.plugged[i.PortID].ContainerID != "" {
			d.fail["park"] = errors.New("a port of a pod is to be parked")
		}
	})
	if err := d.step("park"); err != nil {
		return err
	}
	d.set(func() { d.parked[i.PortID] = true })
	return d.step("parked")
}

func (d *driver) Unpark(_ context.Context, port string) error {
	if err := d.step("unpark"); err != nil {
		return err
	}
	d.set(func() { delete(d.parked, port) })
	return d.step("unparked")
}

func (d *driver) Parked(context.Context) (map[string]bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.parked), nil
}

func (d *driver) Counts() plug.Counts { d.mu.Lock(); defer d.mu.Unlock(); return d.machine.counts }

// lease is the API for one daemon: a killed daemon writes nothing any more.
type lease struct {
	*server
	driver *driver
}

func (l lease) Report(ctx context.Context, name string, a *v1.Attachment) error {
	if l.driver.dead.Load() {
		return errAway
	}
	return l.server.Report(ctx, name, a)
}
