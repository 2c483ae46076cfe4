// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// withHostPorts returns a request with these port mappings of the runtime.
func withHostPorts(req cni.Request, mappings string) cni.Request {
	req.Config = fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"kuryr","type":"kuryr-cni","runtimeConfig":{"portMappings":%s}}`, mappings)
	return req
}

const (
	web8080   = `[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":0,"containerPort":81}]`
	passes808 = "0.0.0.0:8080->10.0.0.5:80 :::8080->[fd00::5]:80"
)

func nodeWithTables(t *testing.T) (*node, *world) {
	n, w := newNode(t), newWorld(t)
	n.tables, n.services = w, w
	n.api.put(kuryrPort(portA, uidA))
	return n, w
}

// A pod's host ports work when its ADD is answered. They outlive the daemon, and end with the
// pod. A node without host ports is not changed.
func TestHostPorts(t *testing.T) {
	t.Parallel()
	n, w := nodeWithTables(t)
	n.start()
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.do(request("DEL", "c1", "/run/netns/a"))
	mark := filepath.Join(n.dir, "state", "nodeports")
	if _, err := os.Stat(mark); w.times() != 0 || err == nil {
		t.Errorf("the tables of a node without host ports were looked at %d times (mark: %v)", w.times(), err)
	}
	n.do(withHostPorts(request("ADD", "c2", "/run/netns/a"), web8080))
	if got := w.passes(); got != passes808 {
		t.Errorf("when the ADD is answered the node passes on %q", got)
	}
	n.end()
	w.set(func() { w.table = nil }) // as after a restart of the node
	n.start()
	n.eventually("they are passed on again", func() bool { return w.passes() == passes808 })
	n.do(withHostPorts(request("ADD", "c2", "/run/netns/a"), web8080)) // repeated
	n.do(withHostPorts(request("DEL", "c2", "/run/netns/a"), web8080))
	n.eventually("nothing is left", func() bool {
		_, err := os.Stat(mark)
		return w.passes() == "" && errors.Is(err, os.ErrNotExist)
	})
}

// A pod's next sandbox has its host ports, whenever the DEL of the former one comes.
func TestHostPortsOfNextSandbox(t *testing.T) {
	t.Parallel()
	n, w := nodeWithTables(t)
	n.start()
	n.do(withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080))
	n.do(withHostPorts(request("ADD", "c2", "/run/netns/b"), strings.ReplaceAll(web8080, "8080", "8081")))
	n.do(request("DEL", "c1", "/run/netns/a"))
	if got, want := w.passes(), strings.ReplaceAll(passes808, "8080", "8081"); got != want {
		t.Errorf("the node passes on %q, want %q", got, want)
	}
}

// A DEL removes host ports even while the switch is unavailable.
func TestHostPortsWithoutSwitch(t *testing.T) {
	t.Parallel()
	n, w := nodeWithTables(t)
	n.start()
	n.do(withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080))
	n.set(func() { n.fail["unplug"] = errors.New("the switch is away") })
	_, _ = n.call(t.Context(), request("DEL", "c1", "/run/netns/a"))
	n.eventually("nothing is passed on", func() bool { return w.passes() == "" })
}

// A pod whose host ports cannot be forwarded is refused, which its Events show. It is plugged
// when they can be.
func TestHostPortsFail(t *testing.T) {
	t.Parallel()
	n, w := nodeWithTables(t)
	w.fail = errors.New("operation not supported")
	n.start()
	n.refuse(withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080), cni.CodeHostPort)
	n.rests(portA, "")
	w.set(func() { w.failed = [2]bool{false, true} })
	n.refuse(withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080), cni.CodeHostPort)
	w.set(func() { w.fail = nil })
	n.do(withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080))
	n.rests(portA, "c1")
	n.refuse(withHostPorts(request("ADD", "c2", "/run/netns/b"), `[{"hostPort":70000,"containerPort":80}]`), cni.CodeInvalidConfig)
	n.rests(portA, "c1")
}

// A failure of the other IP family, for example because of a Service, does not affect the pod.
func TestHostPortsOfOneFamily(t *testing.T) {
	t.Parallel()
	n, w := nodeWithTables(t)
	port := kuryrPort(portA, uidA)
	port.Spec.VIF.Addresses = port.Spec.VIF.Addresses[:1]
	n.api.put(port)
	w.fail, w.failed = errors.New("operation not supported"), [2]bool{false, true}
	n.start()
	n.do(withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080))
}

// A host port of a pod must not take a port that the node itself listens on. Otherwise the
// kubelet's requests to the daemon's /livez would go to the pod, which may not answer.
func TestHostPortThatTheNodeListensOn(t *testing.T) {
	t.Parallel()
	n, w := nodeWithTables(t)
	n.listens = listens
	n.start()
	for name, c := range map[string]struct{ network, at, protocol, hostIP string }{
		"all addresses, one taken":           {"tcp4", "127.0.0.1:0", "tcp", ""},
		"all addresses, all taken":           {"tcp", ":0", "TCP", "0.0.0.0"},
		"one address, all taken":             {"tcp4", "0.0.0.0:0", "", "127.0.0.1"},
		"UDP":                                {"udp4", "127.0.0.1:0", "udp", ""},
		"IPv6, by a socket that is for both": {"tcp", "[::]:0", "tcp", "::1"},
	} {
		closer, port := listenAt(t, c.network, c.at)
		mapping := fmt.Sprintf(`[{"hostPort":%d,"containerPort":80,"protocol":%q,"hostIP":%q}]`, port, c.protocol, c.hostIP)
		add := withHostPorts(request("ADD", "c1", "/run/netns/a"), mapping)
		_, err := n.call(t.Context(), add)
		if codeOf(err) != cni.CodeHostPort || !strings.Contains(err.Error(), strconv.Itoa(port)) {
			t.Errorf("%s: ADD = %v, want code %d that names port %d", name, err, cni.CodeHostPort, port)
		}
		n.rests(portA, "")
		_ = closer.Close()
		n.do(add)
		again, _ := listenAt(t, c.network, strings.TrimSuffix(c.at, "0")+strconv.Itoa(port))
		n.do(add) // the running pod keeps its host port
		_ = again.Close()
		n.do(request("DEL", "c1", "/run/netns/a"))
		n.rests(portA, "")
	}
	n.eventually("nothing is passed on", func() bool { return w.passes() == "" })
}

// A port from which the node has a connection is free. The answers belong to the connection,
// which may exist for days.
func TestHostPortThatTheNodeTalksFrom(t *testing.T) {
	t.Parallel()
	n, _ := nodeWithTables(t)
	n.listens = listens
	n.start()
	for _, network := range []string{"tcp4", "udp4", "tcp6", "udp6"} {
		host := map[bool]string{true: "[::1]", false: "127.0.0.1"}[strings.HasSuffix(network, "6")]
		far, at := listenAt(t, network, host+":0")
		conn, err := net.Dial(network, host+":"+strconv.Itoa(at))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(conn.LocalAddr().String())
		for _, hostIP := range []string{"", strings.Trim(host, "[]")} {
			for taken, refused := range map[string]bool{port: false, strconv.Itoa(at): true} {
				add := withHostPorts(request("ADD", "c1", "/run/netns/a"), fmt.Sprintf(`[{"hostPort":%s,"containerPort":80,"protocol":%q,"hostIP":%q}]`, taken, network[:3], hostIP))
				if _, err := n.call(t.Context(), add); (codeOf(err) == cni.CodeHostPort) != refused || !refused && err != nil {
					t.Errorf("%s: ADD with port %s of %q = %v, want it to be refused: %v", network, taken, hostIP, err, refused)
				}
				n.do(request("DEL", "c1", "/run/netns/a"))
			}
		}
		_, _ = conn.Close(), far.Close()
	}
}

// listenAt makes the node listen, and returns the port.
func listenAt(t *testing.T, network, address string) (io.Closer, int) {
	t.Helper()
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		return c, c.LocalAddr().(*net.UDPAddr).Port
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l, l.Addr().(*net.TCPAddr).Port
}

func TestHostPortsWithoutTables(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.api.put(kuryrPort(portA, uidA))
	n.start()
	n.refuse(withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080), cni.CodeHostPort)
	n.do(withHostPorts(request("ADD", "c1", "/run/netns/a"), `[]`))
}

// A port in CNI_ARGS has host ports, too, and needs no API for them.
func TestHostPortsOfArgs(t *testing.T) {
	t.Parallel()
	n, w := nodeWithTables(t)
	n.api.setDown(true)
	n.startAnyhow()
	req := withHostPorts(request("ADD", "c1", "/run/netns/a"), `[{"hostPort":53,"containerPort":5353,"protocol":"UDP","hostIP":"127.0.0.1"}]`)
	req.Args = "PORT_UUID=" + portA + ";PORT_TYPE=bridge;IPV4=10.0.0.9/24"
	n.do(req)
	if got := w.passes(); got != "127.0.0.1:53->10.0.0.9:5353" {
		t.Errorf("the node passes on %q", got)
	}
}

// The node cannot reach its pod through a macvlan.
func TestHostPortsOfMacvlan(t *testing.T) {
	t.Parallel()
	n, w := nodeWithTables(t)
	port := kuryrPort(portA, uidA)
	port.Spec.VIF.Type = "macvlan"
	n.api.put(port)
	n.log = funcr.New(func(_, line string) { w.set(func() { w.lines = append(w.lines, line) }) }, funcr.Options{})
	n.start()
	n.do(withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080))
	if w.times() != 0 || w.logged("of type macvlan do not work") != 1 {
		t.Errorf("the tables were looked at %d times, and it was told %d times", w.times(), w.logged("of type macvlan"))
	}
}

// Until Services are known, the tables that an earlier process made for them stay, and no ADD
// waits for them. If none were served before, host ports do not wait, either.
func TestHostPortsBeforeServices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	host := nodeport.HostPort{
		Pod: "default/web", Protocol: corev1.ProtocolTCP, Port: 8080, To: []netip.Addr{netip.MustParseAddr("10.0.0.5")}, Target: 80,
	}
	w.services.Add(webService(30080))
	w.hosts = []nodeport.HostPort{host}
	w.services.ListError = errors.New("forbidden")
	const hostOnly, both = "0.0.0.0:8080->10.0.0.5:80", "0.0.0.0:30080->10.96.0.10:80 0.0.0.0:8080->10.0.0.5:80"
	_, stop := w.start(t, w)
	eventually(t, "the host port is passed on", func() bool { return w.passes() == hostOnly })
	stop()
	w.services.ListError = nil
	_, stop = w.start(t, w)
	eventually(t, "both are", func() bool { return w.passes() == both })
	stop()
	w.services.ListError = errors.New("forbidden")
	host.Port = 8081
	w.set(func() { w.hosts = []nodeport.HostPort{host} })
	times := w.times()
	n, _ := w.start(t, w)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := n.settled(ctx, entry{}); err != nil || w.passes() != both || w.times() != times {
		t.Errorf("while Services are not known: %v, and the node passes on %q, want %q", err, w.passes(), both)
	}
}

// Services are served or not, as the configuration says while the daemon runs. Host ports stay.
func TestServeServices(t *testing.T) {
	t.Parallel()
	n, w := nodeWithTables(t)
	port := freePort(t)
	w.services.Add(checkedService(port))
	w.slices.Add(webSlice("n1"))
	n.start()
	n.do(withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080))
	if got := w.passes(); got != passes808 || health(port).code != 0 {
		t.Errorf("with Services left alone the node passes on %q", got)
	}
	for range 2 {
		n.daemon.ServeServices(true)
		n.eventually("the Service is passed on", func() bool { return w.passes() == "0.0.0.0:30080->10.96.0.10:80 "+passes808 })
		n.eventually("its health check is answered", func() bool { return health(port).local == 1 })
		n.daemon.ServeServices(false)
		n.eventually("only host ports are passed on", func() bool { return w.passes() == passes808 && health(port).code == 0 })
	}
	n.do(request("DEL", "c1", "/run/netns/a"))
	n.eventually("nothing is passed on", func() bool { return w.passes() == "" })
	n.daemon.ServeServices(true)
	n.eventually("the Service is passed on", func() bool { return w.passes() == "0.0.0.0:30080->10.96.0.10:80" })
}

// Entries of an older version have no host ports, and can be read.
func TestJournalWithoutHostPorts(t *testing.T) {
	var e entry
	if err := json.Unmarshal([]byte(`{"version":1,"containerID":"c","ifName":"eth0","port":{"id":"p","type":"ovs","addresses":[]}}`), &e); err != nil {
		t.Fatal(err)
	}
	if err := e.check(); err != nil || len(e.hostPorts()) != 0 {
		t.Errorf("check() = %v, hostPorts() = %v", err, e.hostPorts())
	}
}
