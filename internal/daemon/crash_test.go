// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// Invariant 3: the process stops between any two effects. After a restart the same call, or the
// DEL, ends as if it had not been interrupted.
func TestKilledInAdd(t *testing.T) {
	for _, step := range []string{"plug", "plugged", "wait", "wired"} {
		for _, then := range []string{"ADD again", "ADD of a new sandbox", "DEL", "DEL of a dead sandbox", "nothing, and the sandbox is gone"} {
			t.Run(step+"/"+then, func(t *testing.T) {
				t.Parallel()
				n := newNode(t).start()
				n.api.put(kuryrPort(portA, uidA))
				killed := n.killAt(step)
				n.cutOff(request("ADD", "c1", "/run/netns/a"), killed)
				n.afterCrash(then)
			})
		}
	}
}

// cutOff makes a call during which the daemon is killed.
func (n *node) cutOff(req cni.Request, killed <-chan struct{}) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	go func() { <-killed; cancel() }() // the connection of a killed process breaks
	if _, err := n.call(ctx, req); err == nil {
		n.t.Fatalf("%s succeeded in a killed daemon", req.Command)
	}
	<-killed
	n.set(func() { n.hook = nil })
}

func (n *node) afterCrash(then string) {
	n.t.Helper()
	switch then {
	case "ADD again":
		n.start()
		n.do(request("ADD", "c1", "/run/netns/a"))
		n.rests(portA, "c1")
		n.do(request("DEL", "c1", ""))
		n.rests(portA, "")
	case "ADD of a new sandbox":
		n.start()
		n.do(request("ADD", "c2", "/run/netns/b"))
		n.rests(portA, "c2")
		n.do(request("DEL", "c1", "/run/netns/a"))
		n.rests(portA, "c2")
	case "DEL":
		n.start()
		n.do(request("DEL", "c1", "/run/netns/a"))
		n.rests(portA, "")
	case "DEL of a dead sandbox":
		n.start()
		n.do(request("DEL", "c1", ""))
		n.rests(portA, "")
	default:
		n.set(func() { delete(n.live, "/run/netns/a") })
		n.start()
		n.rests(portA, "")
	}
}

func TestKilledInDel(t *testing.T) {
	for _, step := range []string{"unplug", "unplugged"} {
		for _, then := range []string{"DEL", "DEL of a dead sandbox", "nothing, and the sandbox is gone"} {
			t.Run(step+"/"+then, func(t *testing.T) {
				t.Parallel()
				n := newNode(t).start()
				n.api.put(kuryrPort(portA, uidA))
				n.do(request("ADD", "c1", "/run/netns/a"))
				n.rests(portA, "c1")
				killed := n.killAt(step)
				n.cutOff(request("DEL", "c1", "/run/netns/a"), killed)
				n.afterCrash(then)
			})
		}
	}
}

// The daemon is killed after the takeover of a port, before it forgot the older sandbox. Of the
// two entries the newer one counts.
func TestKilledInTakeover(t *testing.T) {
	for _, step := range []string{"plug", "plugged"} {
		for _, first := range []string{"c1", "c2"} {
			t.Run(step+"/"+first, func(t *testing.T) {
				n := newNode(t).start()
				n.api.put(kuryrPort(portA, uidA))
				n.do(request("ADD", "c1", "/run/netns/a"))
				killed := n.killAt(step)
				n.cutOff(request("ADD", "c2", "/run/netns/b"), killed)
				n.start()
				second := map[string]string{"c1": "c2", "c2": "c1"}[first]
				n.do(request("DEL", first, ""))
				n.do(request("DEL", second, ""))
				n.rests(portA, "")
			})
		}
	}
}

func TestRestartKeepsWhatLives(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	want := n.do(request("ADD", "c1", "/run/netns/a"))
	n.rests(portA, "c1")
	n.end()
	n.api.setDown(true) // and the API has lost what was reported
	n.api.objects[portA].Status.Attachment = nil
	n.api.setDown(false)
	n.start()
	n.rests(portA, "c1")
	if n.count("unplug") != 0 {
		t.Error("a restart has unplugged a live pod")
	}
	if diff := cmp.Diff(want, n.do(request("ADD", "c1", "/run/netns/a"))); diff != "" {
		t.Errorf("ADD after the restart (-before +after):\n%s", diff)
	}
}

func TestRestartClearsWhatIsNotThere(t *testing.T) {
	n := newNode(t)
	p := kuryrPort(portA, uidA)
	p.Status.Attachment = entry{ContainerID: "c0", IfName: "eth0"}.attachment()
	n.api.put(p)
	n.start()
	n.rests(portA, "")
}

// A DEL that was left while the daemon was not running is done after it starts. It is retried as
// long as needed, even if the sandbox still exists.
func TestDelLeftWhileAway(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.end()
	if err := cni.Leave(n.socket(), request("DEL", "c1", "/run/netns/a")); err != nil {
		t.Fatal(err)
	}
	n.set(func() { n.fail["unplug"] = plug.ErrDataPath })
	n.start()
	n.eventually("it was tried", func() bool { return n.count("unplug") > 0 })
	n.end()
	n.set(func() { delete(n.fail, "unplug") })
	n.start()
	n.rests(portA, "")
}

// A pod's deletion does not wait for an unavailable switch. Its port counts as attached until it
// is unplugged, after the switch is available again.
func TestDelWithoutADataPath(t *testing.T) {
	for name, away := range map[string]error{"away": plug.ErrDataPath, "silent": context.DeadlineExceeded} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %v", name, restart), func(t *testing.T) {
				n := newNode(t).start()
				n.api.put(kuryrPort(portA, uidA))
				n.do(request("ADD", "c1", "/run/netns/a"))
				n.set(func() { n.fail["unplug"] = fmt.Errorf("asking the switch: %w", away) })
				n.do(request("DEL", "c1", "/run/netns/a"))
				n.do(request("DEL", "c1", "")) // as containerd repeats it
				n.daemon.sweep(t.Context())
				if restart {
					n.end()
					n.start()
				}
				n.rests(portA, "c1")
				n.set(func() { delete(n.fail, "unplug") })
				n.daemon.sweep(t.Context())
				n.rests(portA, "")
			})
		}
	}
}

// That DEL does not apply to the pod's next sandbox, or to a repeated ADD of the same one.
func TestAddAfterADelWithoutADataPath(t *testing.T) {
	for _, container := range []string{"c1", "c2"} {
		n := newNode(t).start()
		n.api.put(kuryrPort(portA, uidA))
		n.do(request("ADD", "c1", "/run/netns/a"))
		n.set(func() { n.fail["unplug"] = plug.ErrDataPath })
		n.do(request("DEL", "c1", "/run/netns/a"))
		n.set(func() { delete(n.fail, "unplug") })
		n.do(request("ADD", container, "/run/netns/b"))
		n.daemon.sweep(t.Context())
		n.rests(portA, container)
	}
}

// The DEL that was left does not apply to a container that returns under the same ID.
func TestAddTakesBackTheDelLeft(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	if err := cni.Leave(n.socket(), request("DEL", "c1", "/run/netns/a")); err != nil {
		t.Fatal(err)
	}
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.end()
	n.start()
	n.daemon.markLeft(t.Context())
	n.daemon.sweep(t.Context())
	n.rests(portA, "c1")
}

func TestJournalSetsBadFilesAside(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(n.dir, "state", "attachments")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	good := `{"version":1,"containerID":"c1","ifName":"eth0","netns":"/run/netns/a","network":"kuryr","since":"2026-01-01T00:00:00Z","port":{"id":"` + portA + `","type":"ovs","addresses":[{"prefix":"10.0.0.5/24"}]}}`
	for name, content := range map[string]string{
		"c1@eth0.json": good,
		"c2@eth0.json": good, // about another attachment
		"c3@eth0.json": "",
		"c4@eth0.json": `{"version":1,"containerID":"c4","ifName":"eth0"`,
		"c5@eth0.json": `{"version":2,"containerID":"c5","ifName":"eth0"}`,
		"c6@eth0.json": `{"version":1,"containerID":"c6","ifName":"eth0","port":{"id":"x","type":"ovs","mac":"zz"}}`,
		"c7@eth0.json": `{"version":1,"containerID":"c7","ifName":"eth0","port":{"id":"x","type":"ovs","addresses":[{}]}}`,
		"c8@eth0.json": "null",
		".tmp-1":       "cut off",
		"README":       "not ours",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.plugged[portA] = plug.Interface{PortID: portA, ContainerID: "c1"}
	p := kuryrPort(portA, uidA)
	n.api.put(p)
	n.start()
	n.rests(portA, "c1")
	bad, err := filepath.Glob(filepath.Join(dir, "*.bad"))
	if err != nil || len(bad) != 7 {
		t.Errorf("set aside %v (%v), want 7 files", bad, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".tmp-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file is still there: %v", err)
	}
}

// The attachment in an unusable journal file is known to the switch only. The daemon removes it
// after its device is gone, at the start and later.
func TestSweepCollectsWhatNoJournalTells(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.end()
	path := filepath.Join(n.dir, "state", "attachments", "c2@eth0.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.set(func() { n.rows["c1"], n.rows["c2"] = true, true })
	n.start()
	left := func() string {
		n.mu.Lock()
		defer n.mu.Unlock()
		return fmt.Sprint(n.rows)
	}
	n.eventually("the row of c2 is removed, and no other", func() bool { return left() == "map[c1:true]" })
	n.do(request("DEL", "c2", ""))
	n.set(func() { n.rows["c3"], n.fail["collect"] = true, plug.ErrDataPath })
	n.daemon.sweep(t.Context())
	if got := left(); got != "map[c1:true]" {
		t.Errorf("after the next sweep: %s", got)
	}
	n.rests(portA, "c1")
}

// late is a listener that gets a connection just when the daemon stops.
type late struct {
	net.Listener
	stop context.CancelFunc
	conn net.Conn
}

func (l late) Accept() (net.Conn, error) { l.stop(); return l.conn, nil }

// A client that connects while the daemon stops learns at once that it gets no answer.
func TestConnectionWhileStopping(t *testing.T) {
	ours, theirs := net.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	if err := new(Daemon).accept(ctx, ctx, late{stop: stop, conn: ours}); err != nil {
		t.Fatalf("accept() = %v", err)
	}
	_ = theirs.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading from the connection = %v, want EOF", err)
	}
}

// An ADD that waits when the daemon stops gets an error that says so.
func TestAddWhileStopping(t *testing.T) {
	n := newNode(t).start()
	done := make(chan error, 1)
	go func() { _, err := n.call(t.Context(), request("ADD", "c1", "/run/netns/a")); done <- err }()
	n.eventually("the ADD is at work", func() bool {
		release, ok := n.daemon.sandboxes.Try(attachmentKey("c1", "eth0"))
		if ok {
			release()
		}
		return !ok
	})
	n.end()
	if err := <-done; codeOf(err) != cni.CodeTryAgain || !strings.Contains(fmt.Sprint(err), "stopping") {
		t.Errorf("ADD = %v (code %d), want code %d and that the daemon is stopping", err, codeOf(err), cni.CodeTryAgain)
	}
}

func TestSocket(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(filepath.Dir(n.socket()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.socket(), []byte("stale"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.start()
	info, err := os.Stat(n.socket())
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("socket: %v, %v, want mode %v", info.Mode(), err, os.ModeSocket|0o600)
	}
	n.end()
	n.start()
}

func ExampleInstall() {
	fmt.Print(string(conflist(cni.SocketPath, ConfVersion, 60_000_000_000)))
	// Output:
	// {
	//   "cniVersion": "1.0.0",
	//   "name": "kuryr",
	//   "plugins": [
	//     {
	//       "capabilities": {
	//         "portMappings": true
	//       },
	//       "socket": "/run/kuryr/cni.sock",
	//       "timeout": "1m15s",
	//       "type": "kuryr-cni"
	//     }
	//   ]
	// }
}

// A running pod whose port was removed from the switch gets its network back.
func TestSweepMends(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.set(func() { n.off[portA], n.off[portB] = true, true })
	n.daemon.sweep(t.Context())
	if !n.off[portB] || n.off[portA] {
		t.Errorf("off the switch are %v, want only what no pod has", n.off)
	}
	if got := testutil.ToFloat64(n.daemon.metrics.mended); got != 1 {
		t.Errorf("kuryr_cni_mended_total is %v, want 1", got)
	}
	n.rests(portA, "c1")
	n.do(request("DEL", "c1", "/run/netns/a"))
	n.set(func() { n.off[portA] = true })
	n.daemon.sweep(t.Context())
	if !n.off[portA] {
		t.Error("a port that no pod has any more was plugged into the switch")
	}
}
