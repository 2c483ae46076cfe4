// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/nodetest"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// recorder is a binding driver that records its calls, and ends as the file "end" says.
const recorder = `#!/bin/sh
here=$(dirname "$0")/..
{ echo "args $*"; env | grep ^KURYR_ | sort; } >>"$here/calls"
cat >"$here/stdin-$1"
ip link show "$KURYR_HOST_IFNAME" >"$here/device" 2>&1
if [ -e "$here/end" ]; then . "$here/end"; fi
`

type recording struct{ dir string }

func newRecorder(t *testing.T) (plug.Driver, recording) {
	t.Helper()
	dir := t.TempDir()
	drivers := filepath.Join(dir, "drivers")
	if err := os.Mkdir(drivers, 0o755); err != nil {
		t.Fatal(err)
	}
	script(t, drivers, "midonet", recorder)
	return driver(t, plug.New(plug.Config{DriverDir: drivers}), "midonet"), recording{dir}
}

func (r recording) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// verbs returns the calls since the last call of verbs.
func (r recording) verbs(t *testing.T) []string {
	t.Helper()
	var verbs []string
	for line := range strings.Lines(r.read(t, "calls")) {
		if verb, ok := strings.CutPrefix(strings.TrimSpace(line), "args "); ok {
			verbs = append(verbs, verb)
		}
	}
	if err := os.Remove(filepath.Join(r.dir, "calls")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return verbs
}

// end makes the next calls run this shell code at their end.
func (r recording) end(t *testing.T, shell string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "end"), []byte(shell), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBindingDriverIsTold(t *testing.T) {
	nodetest.Need(t)
	t.Setenv("OS_PASSWORD", "secret")
	d, r := newRecorder(t)
	ns := newNamespace(t)
	p := pod(t, "midonet", 1, ns)
	p.Bridge, p.VLANID, p.ParentPortID, p.Details = "br0", 7, "parent", map[string]string{"host": "a b\nc"}
	mustPlug(t, d, p)

	want := fmt.Sprintf(`args plug
KURYR_ADDRESSES=10.7.0.3/16 fd07::3/64
KURYR_BRIDGE=br0
KURYR_CONTAINER_ID=%s
KURYR_HOST_IFNAME=tap00000002-01
KURYR_IFNAME=eth0
KURYR_MAC=fa:16:3e:00:00:01
KURYR_MTU=1442
KURYR_NETNS=%s
KURYR_PARENT_PORT_ID=parent
KURYR_POD=default/pod-1
KURYR_PORT_ID=00000002-0100-4000-8000-00000000cafe
KURYR_TYPE=midonet
KURYR_VERB=plug
KURYR_VERSION=binding.kuryr.openstack.org/v1
KURYR_VLAN_ID=7
`, p.ContainerID, ns.path)
	if diff := cmp.Diff(want, r.read(t, "calls")); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if strings.Contains(r.read(t, "calls"), "secret") {
		t.Error("the driver got the daemon's environment")
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(r.read(t, "stdin-plug")), &got); err != nil {
		t.Fatalf("standard input: %v", err)
	}
	if diff := cmp.Diff(map[string]any{
		"apiVersion": "binding.kuryr.openstack.org/v1", "verb": "plug", "type": "midonet",
		"portID": p.PortID, "hostDevice": "tap00000002-01", "containerID": p.ContainerID, "netns": ns.path,
		"interface": "eth0", "mac": "fa:16:3e:00:00:01", "mtu": 1442.0,
		"addresses": []any{
			map[string]any{"address": "10.7.0.3/16", "gateway": "10.7.0.1"},
			map[string]any{"address": "fd07::3/64", "gateway": "fd07::1"},
		},
		"routes":  []any{map[string]any{"destination": "10.96.0.0/12", "gateway": "10.7.0.9"}},
		"default": true, "bridge": "br0", "vlanID": 7.0, "parentPortID": "parent", "pod": "default/pod-1",
		"details": map[string]any{"host": "a b\nc"},
	}, got); diff != "" {
		t.Errorf("standard input (-want +got):\n%s", diff)
	}
	if !strings.Contains(r.read(t, "device"), ",UP") {
		t.Errorf("the device was not up when the driver was called: %s", r.read(t, "device"))
	}
	if out := ns.run(t, "ip", "route"); !strings.Contains(out, "default via 10.7.0.1") {
		t.Errorf("routes of the sandbox: %s", out)
	}
}

func TestBindingDriverIsCalledWhenNeeded(t *testing.T) {
	nodetest.Need(t)
	d, r := newRecorder(t)
	p := pod(t, "midonet", 1, newNamespace(t))
	q := p
	q.ContainerID, q.Netns = "second", newNamespace(t).path
	gone := q
	gone.Netns = ""
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"plug", func() error { return d.Plug(t.Context(), p) }, []string{"plug"}},
		{"plug again", func() error { return d.Plug(t.Context(), p) }, []string{"plug"}},
		{"wait", func() error { return d.Wait(t.Context(), p) }, nil},
		{"check", func() error { return d.Check(t.Context(), p) }, []string{"check"}},
		{"to another sandbox", func() error { return d.Plug(t.Context(), q) }, []string{"unplug", "plug"}},
		{"late unplug", func() error { return d.Unplug(t.Context(), p) }, nil},
		{"unplug", func() error { return d.Unplug(t.Context(), gone) }, []string{"unplug"}},
		{"unplug again", func() error { return d.Unplug(t.Context(), gone) }, []string{"unplug"}},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, r.verbs(t)); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", step.name, diff)
		}
	}
	if hasDevice(t, plug.HostDevice(p.PortID)) {
		t.Error("the device is left")
	}
}

func TestBindingDriverFails(t *testing.T) {
	nodetest.Need(t)
	d, r := newRecorder(t)
	p := pod(t, "midonet", 1, newNamespace(t))
	for name, c := range map[string]struct {
		end   string
		says  string
		again bool
	}{
		"fails":           {"echo no such port >&2; exit 1", "no such port", false},
		"silently":        {"exit 3", "it said nothing", false},
		"may be repeated": {"echo agent restarts; exit 75", "agent restarts", true},
		"killed":          {"kill -9 $$", "killed", false},
		"says too much":   {"yes too much | head -c 1000000; echo the end; exit 1", "the end", false},
		"control codes":   {`printf '\033[31mred\007\n\377two\n'; exit 1`, "[31mred ?two", false},
	} {
		t.Run(name, func(t *testing.T) {
			r.end(t, c.end)
			err := d.Plug(t.Context(), p)
			if !errors.Is(err, plug.ErrDriver) || errors.Is(err, plug.ErrTryAgain) != c.again || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Plug = %v, want ErrDriver that says %q; to be repeated: %v", err, c.says, c.again)
			}
			if len(err.Error()) > 6000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
	r.end(t, "exit 0")
	mustPlug(t, d, p)
	r.end(t, "exit 1")
	if err := d.Unplug(t.Context(), p); !errors.Is(err, plug.ErrDriver) || !hasDevice(t, plug.HostDevice(p.PortID)) {
		t.Errorf("Unplug = %v, want ErrDriver, and the device to stay", err)
	}
}

// The driver and all processes that it started are killed with the call.
func TestBindingDriverHangs(t *testing.T) {
	nodetest.Need(t)
	d, r := newRecorder(t)
	r.end(t, "sleep 1000 & echo $! >$here/pid; wait")
	p := pod(t, "midonet", 1, newNamespace(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := d.Plug(ctx, p)
	if !errors.Is(err, plug.ErrDriver) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Plug = %v, want ErrDriver and DeadlineExceeded", err)
	}
	pid := strings.TrimSpace(r.read(t, "pid"))
	eventually(t, "the driver's child to end", func() bool {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

func TestBindingDriverIsFound(t *testing.T) {
	dir := t.TempDir()
	script(t, dir, "sriov", "#!/bin/sh\n")
	script(t, dir, "for-all", "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(dir, "for-all"), 0o777); err != nil {
		t.Fatal(err)
	}
	script(t, dir, "not-roots", "#!/bin/sh\n")
	if err := os.Chown(filepath.Join(dir, "not-roots"), 65534, 0); err != nil {
		t.Logf("without root a file cannot be given away, and is not found for another reason: %v", err)
		_ = os.Remove(filepath.Join(dir, "not-roots"))
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := plug.New(plug.Config{DriverDir: dir})
	for _, typ := range []string{"ovs", "bridge", "sriov"} {
		if _, err := s.Driver(typ); err != nil {
			t.Errorf("Driver(%q) = %v", typ, err)
		}
	}
	for _, typ := range []string{
		"", ".", "..", "text", "folder", "for-all", "not-roots", "nothing", "../sriov", "./sriov", "sriov/", "/bin/sh", "SRIOV", "sriov\x00", "sriov\n", "-x", "a b",
		strings.Repeat("a", 64),
	} {
		if _, err := s.Driver(typ); !errors.Is(err, plug.ErrUnknownType) {
			t.Errorf("Driver(%q) = %v, want ErrUnknownType", typ, err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Driver("sriov"); !errors.Is(err, plug.ErrUnknownType) || !strings.Contains(err.Error(), dir+" is writable by others") {
		t.Errorf("Driver from a folder that all may write to = %v, want ErrUnknownType that names it", err)
	}
	if _, err := s.Driver("nothing"); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "nothing")) {
		t.Errorf("the error %q does not say where the driver was looked for", err)
	}
}

// The shipped example, with an mm-ctl that stores its ports in files.
func TestMidonetExample(t *testing.T) {
	nodetest.Need(t)
	bin, ports := t.TempDir(), t.TempDir()
	script(t, bin, "mm-ctl", `#!/bin/sh
[ ! -e `+ports+`/down ] || { echo "midolman is not running" >&2; exit 1; }
case $1 in
--bind-port)
	if [ -e `+ports+`/"$2" ]; then echo "port $2 is bound already" >&2; exit 1; fi
	ip link show "$3" >/dev/null || exit 1
	echo "$3" >`+ports+`/"$2" ;;
--unbind-port) rm -- `+ports+`/"$2" ;;
--list-hosts) ;;
*) exit 64 ;;
esac
`)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	example, err := os.ReadFile("../../config/drivers/midonet")
	if err != nil {
		t.Fatal(err)
	}
	drivers := t.TempDir() // owned by root, whatever user owns the source
	script(t, drivers, "midonet", string(example))
	d := driver(t, plug.New(plug.Config{DriverDir: drivers}), "midonet")
	p := pod(t, "midonet", 1, newNamespace(t))
	bindsAndUnbinds(t, d, p, ports)
	if err := os.WriteFile(filepath.Join(ports, "down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Plug(t.Context(), p); !errors.Is(err, plug.ErrDriver) || !strings.Contains(err.Error(), "midolman is not running") {
		t.Errorf("Plug without midolman = %v", err)
	}
}

// bindsAndUnbinds plugs and unplugs p, each twice. The driver's mm-ctl writes the device of a
// port into a file of the folder ports.
func bindsAndUnbinds(t *testing.T, d plug.Driver, p plug.Interface, ports string) {
	t.Helper()
	bound := func() string {
		b, _ := os.ReadFile(filepath.Join(ports, p.PortID))
		return strings.TrimSpace(string(b))
	}
	for range 2 {
		mustPlug(t, d, p)
		if got := bound(); got != plug.HostDevice(p.PortID) {
			t.Errorf("port is bound to %q", got)
		}
		mustCheck(t, d, p)
	}
	for range 2 {
		mustUnplug(t, d, p)
		if got := bound(); got != "" {
			t.Errorf("port is bound to %q after Unplug", got)
		}
	}
}

// TestMidonetExampleOfTheNode runs the example as the shipped container does, which has neither a
// shell nor mm-ctl. Driver, shell and mm-ctl are below the root folder of the node.
func TestMidonetExampleOfTheNode(t *testing.T) {
	nodetest.Need(t)
	root := nodeWithShell(t)
	example, err := os.ReadFile("../../config/drivers/midonet")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"usr/libexec/kuryr", "usr/bin", "dev", "ports"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script(t, filepath.Join(root, "usr/libexec/kuryr"), "midonet", string(example))
	script(t, filepath.Join(root, "usr/bin"), "mm-ctl", `#!/bin/sh
case $1 in
--bind-port) [ ! -s "/ports/$2" ] && echo "$3" >"/ports/$2" ;;
--unbind-port) [ -s "/ports/$2" ] && : >"/ports/$2" ;;
*) exit 64 ;;
esac
`)
	d := driver(t, plug.New(plug.Config{HostRoot: root, DriverDir: "/usr/libexec/kuryr"}), "midonet")
	p := pod(t, "midonet", 1, newNamespace(t))
	bindsAndUnbinds(t, d, p, filepath.Join(root, "ports"))
	if _, err := plug.New(plug.Config{HostRoot: root, DriverDir: "/usr/libexec"}).Driver("midonet"); err == nil || !strings.Contains(err.Error(), "/usr/libexec/midonet") {
		t.Errorf("Driver in a folder that has none = %v", err)
	}
}

// nodeWithShell returns a root folder with a copy of this machine's shell and its libraries, and
// nothing else.
func nodeWithShell(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	files := []string{"/bin/sh"}
	out, _ := commandOutput("ldd", "/bin/sh") // fails if the shell is static
	for _, word := range strings.Fields(string(out)) {
		if filepath.IsAbs(word) {
			files = append(files, word)
		}
	}
	for _, f := range files {
		sh(t, "sh", "-c", `mkdir -p "$1$(dirname "$2")" && cp -L "$2" "$1$2"`, "sh", root, f)
	}
	return root
}
