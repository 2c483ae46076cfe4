// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/plug"
)

const (
	portA = "a28c7404-7495-4557-b7fc-3e293508dbc6"
	portB = "b28c7404-7495-4557-b7fc-3e293508dbc6"
	uidA  = "11111111-2222-3333-4444-555555555555"
	uidB  = "99999999-2222-3333-4444-555555555555"
)

// node is a machine, an API server, and the daemon that runs on the machine.
type node struct {
	t        testing.TB
	dir      string
	timeout  time.Duration
	park     bool
	health   string // addresses; empty: not served
	numbers  string
	real     *plug.Set   // drivers of this machine, which replace machine
	log      logr.Logger // default: the test's own, if it is verbose
	services services
	tables   tables
	install  Install
	// By default none: the test's machine has listeners of its own.
	listens func(cni.HostPort, bool) bool
	*machine
	api *server

	daemon *Daemon
	driver *driver
	stop   context.CancelFunc
	ended  chan error
}

func newNode(t testing.TB) *node {
	n := &node{t: t, dir: t.TempDir(), timeout: 20 * time.Second, machine: newMachine(), api: newServer(),
		listens: func(cni.HostPort, bool) bool { return false }}
	n.live["/run/netns/a"], n.live["/run/netns/b"] = true, true
	return n
}

func (n *node) socket() string { return filepath.Join(n.dir, "run", "cni.sock") }

// start runs a daemon, as after a boot or a restart of its pod. It waits until the daemon is
// ready.
func (n *node) start() *node {
	n.t.Helper()
	n.startAnyhow()
	n.eventually("the daemon is ready", func() bool {
		_, err := n.call(context.Background(), request("STATUS", "", ""))
		return err == nil
	})
	return n
}

// startAnyhow is start for a daemon that does not become ready.
func (n *node) startAnyhow() {
	n.t.Helper()
	log := n.log
	if t, ok := n.t.(*testing.T); ok && testing.Verbose() && log.IsZero() {
		log = testr.New(t)
	}
	ctx, stop := context.WithCancel(logr.NewContext(context.Background(), log))
	n.driver = &driver{machine: n.machine}
	d, err := New(ctx, Options{
		Node:     "n1",
		Settings: config.Node{StateDir: filepath.Join(n.dir, "state"), AddTimeout: metav1.Duration{Duration: n.timeout}, Park: n.park},
		Socket:   n.socket(), API: lease{n.api, n.driver}, Drivers: n.driver, Parking: n.driver,
		HealthAddress: n.health, MetricsAddress: n.numbers,
		Services: n.services, Tables: n.tables, Install: n.install,
	})
	if err != nil {
		n.t.Fatalf("New() = %v", err)
	}
	d.listens = n.listens
	if d.netns = n.machine; n.real != nil {
		d.netns, d.Drivers, d.parker.parking = osNamespaces{}, n.real, n.real
	}
	n.daemon, n.stop, n.ended = d, stop, make(chan error, 1)
	ended := n.ended
	go func() { ended <- d.Run(ctx) }()
	n.t.Cleanup(stop)
	n.eventually("the daemon answers", func() bool {
		_, err := n.call(context.Background(), request("STATUS", "", ""))
		return !errors.Is(err, cni.ErrNoDaemon)
	})
}

// end stops the daemon as a SIGTERM does.
func (n *node) end() {
	n.t.Helper()
	n.stop()
	select {
	case err := <-n.ended:
		if err != nil {
			n.t.Fatalf("Run() = %v", err)
		}
	case <-time.After(30 * time.Second):
		n.t.Fatal("Run() does not return after its context has ended")
	}
}

// kill acts like kill -9 for the machine, the disk and the API, at the next step of the driver.
// Connections break.
func (n *node) kill() {
	n.driver.dead.Store(true)
	n.stop()
}

// killAt kills the daemon when its driver comes to a step.
func (n *node) killAt(step string) <-chan struct{} {
	killed := make(chan struct{})
	n.set(func() {
		n.hook = func(s string) {
			if s == step && !n.driver.dead.Load() {
				n.kill()
				close(killed)
			}
		}
	})
	return killed
}

func (n *node) call(ctx context.Context, req cni.Request) (*types100.Result, error) {
	answer, err := cni.Call(ctx, n.socket(), req)
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	return answer.Result, err
}

// do is call for a call that must succeed.
func (n *node) do(req cni.Request) *types100.Result {
	n.t.Helper()
	result, err := n.call(n.t.Context(), req)
	if err != nil {
		n.t.Fatalf("%s of %s = %v", req.Command, req.ContainerID, err)
	}
	return result
}

// refuse is call for a call that must fail with a code.
func (n *node) refuse(req cni.Request, code uint) {
	n.t.Helper()
	_, err := n.call(n.t.Context(), req)
	if got := codeOf(err); got != code {
		n.t.Fatalf("%s of %s = %v (code %d), want code %d", req.Command, req.ContainerID, err, got, code)
	}
}

func codeOf(err error) uint {
	if err == nil {
		return 0
	}
	if errors.Is(err, cni.ErrNoDaemon) {
		return cni.CodeNoDaemon
	}
	return asCNI(err).Code
}

func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("not so after 20 s: %s", what)
		}
	}
}

// rests waits until the port is in that container, in the machine, in the journal and in the API
// ("": in none).
func (n *node) rests(port, container string) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("port %s is plugged into %q", port, container), func() bool { return n.where(port) == container })
	n.eventually(fmt.Sprintf("the journal has port %s in %q", port, container), func() bool {
		entries := n.daemon.journal.ofPort(port)
		if container == "" {
			return len(entries) == 0
		}
		return len(entries) == 1 && entries[0].ContainerID == container
	})
	n.eventually(fmt.Sprintf("the API says that port %s is in %q", port, container), func() bool { return n.api.attachment(port) == container })
}

func request(command, container, netns string) cni.Request {
	return cni.Request{
		Command: command, ContainerID: container, Netns: netns, IfName: "eth0",
		Args:   "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=" + uidA,
		Config: json.RawMessage(`{"cniVersion":"1.1.0","name":"kuryr","type":"kuryr-cni","dns":{"nameservers":["10.0.0.2"]}}`),
	}
}

// kuryrPort returns a KuryrPort that is bound to the pod default/web.
func kuryrPort(name, uid string) *v1.KuryrPort {
	return &v1.KuryrPort{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.KuryrPortSpec{
			Pool: "p", NodeName: "n1", NetworkID: "net",
			VIF: v1.VIF{
				Type: "ovs", MACAddress: "fa:16:3e:00:00:01", MTU: 1442,
				Addresses: []v1.Address{{IP: "10.0.0.5", PrefixLength: 24, Gateway: "10.0.0.1"}, {IP: "fd00::5", PrefixLength: 64}},
				Routes:    []v1.Route{{Destination: "10.96.0.0/16", Gateway: "10.0.0.254"}},
			},
			PodRef: &v1.PodReference{Namespace: "default", Name: "web", UID: types.UID(uid), Interface: "eth0", Default: true},
		},
	}
}
