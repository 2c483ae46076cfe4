// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/cni"
)

var pluginDir string

// plugin is the kuryr-cni executable, built once.
var plugin = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kuryr-cni")
	if err != nil {
		return "", err
	}
	pluginDir = dir
	path := filepath.Join(dir, "kuryr-cni")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "github.com/kuryr-go/kuryr/cmd/kuryr-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building kuryr-cni: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if pluginDir != "" {
		_ = os.RemoveAll(pluginDir)
	}
	os.Exit(code)
}

// execute runs kuryr-cni as a runtime does.
func execute(t testing.TB, stdin string, env ...string) (string, error) {
	t.Helper()
	path, err := plugin()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Env = env
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout = &out
	err = cmd.Run()
	return out.String(), err
}

func env(command, container, netns string, more ...string) []string {
	return append([]string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + container, "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		"CNI_ARGS=" + request("", "", "").Args,
	}, more...)
}

func conf(n *node, v, more string) string {
	return fmt.Sprintf(`{"cniVersion":%q,"name":"kuryr","type":"kuryr-cni","socket":%q,"timeout":"5s"%s}`, v, n.socket(), more)
}

// shimRefuses runs kuryr-cni, which must fail with a CNI error of a code.
func shimRefuses(t *testing.T, code uint, stdin string, env ...string) {
	t.Helper()
	out, err := execute(t, stdin, env...)
	var e struct {
		types.Error
		CNIVersion string
	}
	if bad := json.Unmarshal([]byte(out), &e); err == nil || bad != nil || e.Code != code || e.Msg == "" || e.CNIVersion == "" {
		t.Errorf("kuryr-cni with %q and %q: %v, printed %s, want code %d", stdin, env, err, out, code)
	}
}

// The runtime names a dead sandbox by the path of a process. That process number may by now
// belong to a process of the node.
func TestShimDeletesWhatIsInTheNodesNamespace(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	for range 2 {
		if out, err := execute(t, conf(n, "1.0.0", ""), env("DEL", "c1", "/proc/self/ns/net")...); err != nil || out != "" {
			t.Errorf("DEL: %v, %s", err, out)
		}
		n.rests(portA, "")
	}
	shimRefuses(t, cni.CodeInvalidNetns, conf(n, "1.0.0", ""), env("ADD", "c1", "/proc/self/ns/net")...)
}

// One sandbox's life, with the executable, in each version of the specification.
func TestShimSpeaksEveryVersion(t *testing.T) {
	for _, v := range version.All.SupportedVersions() {
		t.Run(v, func(t *testing.T) {
			n := newNode(t).start()
			n.api.put(kuryrPort(portA, uidA))
			out, err := execute(t, conf(n, v, ""), env("ADD", "c1", "/run/netns/a")...)
			if err != nil {
				t.Fatalf("ADD: %v, %s", err, out)
			}
			var result struct {
				CNIVersion string `json:"cniVersion"`
				IP4        struct{ IP, Gateway string }
				IPs        []struct{ Address string }
			}
			if err := json.Unmarshal([]byte(out), &result); err != nil {
				t.Fatalf("ADD printed %s: %v", out, err)
			}
			old := v == "0.1.0" || v == "0.2.0"
			if result.CNIVersion != v || old != (result.IP4.IP == "10.0.0.5/24") || old == (len(result.IPs) == 2) {
				t.Errorf("ADD printed %s", out)
			}
			n.rests(portA, "c1")
			n.checkAndCollect(t, v, out)
			if out, err := execute(t, conf(n, v, ""), env("DEL", "c1", "")...); err != nil || out != "" {
				t.Errorf("DEL: %v, %s", err, out)
			}
			n.rests(portA, "")
		})
	}
}

func (n *node) checkAndCollect(t *testing.T, v, result string) {
	t.Helper()
	prev := conf(n, v, `,"prevResult":`+result)
	if hasCheck, _ := version.GreaterThanOrEqualTo(v, "0.4.0"); !hasCheck {
		shimRefuses(t, cni.CodeIncompatibleVersion, prev, env("CHECK", "c1", "/run/netns/a")...)
	} else if out, err := execute(t, prev, env("CHECK", "c1", "/run/netns/a")...); err != nil || out != "" {
		t.Errorf("CHECK: %v, %s", err, out)
	}
	valid := conf(n, v, `,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]`)
	for _, command := range []string{"GC", "STATUS"} {
		if v != "1.1.0" {
			shimRefuses(t, cni.CodeIncompatibleVersion, valid, env(command, "", "")...)
		} else if out, err := execute(t, valid, env(command, "", "")...); err != nil || out != "" {
			t.Errorf("%s: %v, %s", command, err, out)
		}
	}
	n.rests(portA, "c1")
}

func TestShimWithoutDaemon(t *testing.T) {
	n := newNode(t)
	shimRefuses(t, cni.CodePluginNotAvailable, conf(n, "1.1.0", ""), env("STATUS", "", "")...)
	shimRefuses(t, cni.CodeNoDaemon, conf(n, "1.1.0", `,"prevResult":{}`), env("CHECK", "c1", "/run/netns/a")...)
	shimRefuses(t, cni.CodeNoDaemon, conf(n, "1.1.0", `,"timeout":"100ms"`), env("ADD", "c1", "/run/netns/a")...)
	out, err := execute(t, "", "CNI_COMMAND=VERSION", "CNI_PATH=x")
	if err != nil || !strings.Contains(out, `"1.1.0"`) || !strings.Contains(out, `"0.1.0"`) {
		t.Errorf("VERSION: %v, %s", err, out)
	}
}

// An ADD waits while the daemon is being replaced. A DEL does not even wait, and is still done.
func TestShimWhileTheDaemonIsReplaced(t *testing.T) {
	n := newNode(t).start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.end()
	if out, err := execute(t, conf(n, "1.0.0", ""), env("DEL", "c1", "/run/netns/a")...); err != nil || out != "" {
		t.Errorf("DEL without a daemon: %v, %s", err, out)
	}
	if n.where(portA) != "c1" {
		t.Fatal("the port is not plugged any more, without a daemon")
	}
	n.start()
	n.rests(portA, "")
	n.end()
	done := make(chan error, 1)
	go func() {
		out, err := execute(t, conf(n, "1.0.0", ""), env("ADD", "c2", "/run/netns/b")...)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		done <- err
	}()
	time.Sleep(200 * time.Millisecond)
	n.start()
	if err := <-done; err != nil {
		t.Errorf("ADD while the daemon is replaced: %v", err)
	}
	n.rests(portA, "c2")
}

func TestShimRefusesNonsense(t *testing.T) {
	n := newNode(t)
	good := conf(n, "1.1.0", "")
	full := env("ADD", "c1", "/run/netns/a")
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(full), func(v string) bool { return strings.HasPrefix(v, name+"=") })
	}
	with := func(value string) []string {
		name, _, _ := strings.Cut(value, "=")
		return append(without(name), value)
	}
	for _, tc := range []struct {
		code  uint
		stdin string
		env   []string
	}{
		{cni.CodeDecoding, "", full}, {cni.CodeDecoding, "{", full}, {cni.CodeDecoding, "[]", full}, {cni.CodeDecoding, "\x00\xff", full},
		{cni.CodeDecoding, strings.Repeat("[", 100_000), full},
		{cni.CodeInvalidConfig, "null", full}, {cni.CodeInvalidConfig, "{}", full}, {cni.CodeInvalidConfig, `{"name":"../x"}`, full},
		{cni.CodeIncompatibleVersion, `{"cniVersion":"9.9.9","name":"n"}`, full},
		{cni.CodeIncompatibleVersion, `{"cniVersion":"x","name":"n"}`, full},
		{cni.CodeDecoding, `{"cniVersion":1,"name":"n"}`, full},
		{cni.CodeDecoding, `{"cniVersion":"x","name":"n"}`, with("CNI_COMMAND=CHECK")},
		{cni.CodeInvalidConfig, `{"cniVersion":"1.1.0","name":"n","socket":"relative"}`, full},
		{cni.CodeInvalidConfig, `{"cniVersion":"1.1.0","name":"n","timeout":"x"}`, full},
		{cni.CodeInvalidEnvironment, good, without("CNI_COMMAND")}, {cni.CodeInvalidEnvironment, good, with("CNI_COMMAND=add")},
		{cni.CodeInvalidEnvironment, good, without("CNI_CONTAINERID")}, {cni.CodeInvalidEnvironment, good, with("CNI_CONTAINERID=../../x")},
		{cni.CodeInvalidEnvironment, good, without("CNI_NETNS")},
		{cni.CodeInvalidEnvironment, good, without("CNI_IFNAME")}, {cni.CodeInvalidEnvironment, good, with("CNI_IFNAME=a/b")},
		{cni.CodeInvalidEnvironment, good, with("CNI_IFNAME=sixteen-letters.")},
		{cni.CodeInvalidNetns, good, with("CNI_NETNS=/proc/self/ns/net")},
	} {
		shimRefuses(t, tc.code, tc.stdin, tc.env...)
	}
}

// Any input leads to a CNI error with a code, or to success.
func TestShimSurvivesAnything(t *testing.T) {
	n := newNode(t).start()
	words := []string{"", "ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "eth0", "c1", "/run/netns/a", "/proc/self/ns/net", "\xff\xfe", "a=b;;=,", "PORT_UUID=1",
		"K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;PORT_UUID=" + portA + ";PORT_TYPE=ovs;IPV4=1.2.3.4/8", strings.Repeat("x", 3000)}
	values := []string{`null`, `1`, `""`, `[]`, `{}`, `"1.1.0"`, `"0.4.0"`, `"0.1.0"`, `"kuryr"`, `[null]`, `{"ips":[null]}`, `{"interfaces":[{}],"ips":[{"interface":9,"address":"::/0"}]}`, `"1s"`, `1e999`, `{"ip4":null}`}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	for range 300 {
		var vars []string
		for _, name := range []string{"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH"} {
			vars = append(vars, name+"="+pick(words))
		}
		stdin := fmt.Sprintf(`{"cniVersion":%s,"name":"kuryr","socket":%q,"timeout":"1s","prevResult":%s,"cni.dev/valid-attachments":%s,"dns":%s}`,
			pick(values), n.socket(), pick(values), pick(values), pick(values))
		if random.IntN(4) == 0 {
			stdin = stdin[:random.IntN(len(stdin))]
		}
		out, err := execute(t, stdin, vars...)
		var e types.Error
		if err != nil && (json.Unmarshal([]byte(out), &e) != nil || e.Code == 0) {
			t.Fatalf("kuryr-cni with %q and %q: %v, printed %q", stdin, vars, err, out)
		}
	}
}

// kuryr-cni is started for every pod and runs on every node. It must link no client of
// Kubernetes, of a cloud or of HTTP.
func TestShimLinksLittle(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/kuryr-go/kuryr/cmd/kuryr-cni").Output()
	if err != nil {
		t.Skip("cannot list what kuryr-cni links, the go command is missing here: ", err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, bad := range []string{"k8s.io/", "sigs.k8s.io/", "github.com/gophercloud/", "net/http", "github.com/prometheus/", "github.com/spf13/", "github.com/vishvananda/netlink"} {
			if strings.HasPrefix(dep, bad) {
				t.Errorf("kuryr-cni links %s", dep)
			}
		}
	}
}

// If a node's folder of plugins is not writable, its pods are served anyway.
func TestInstallThatFailsStopsNoPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	file := filepath.Join(n.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.install = Install{Plugin: file, BinDir: filepath.Join(file, "bin")}
	n.start()
	time.Sleep(300 * time.Millisecond) // so that the daemon has tried
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.end()
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "kuryr-cni")
	if err := os.WriteFile(source, []byte("plugin 1"), 0o644); err != nil {
		t.Fatal(err)
	}
	i := Install{Plugin: source, BinDir: filepath.Join(dir, "bin"), ConfDir: filepath.Join(dir, "net.d")}
	for _, content := range []string{"plugin 1", "plugin 1", "plugin 2"} {
		if err := os.WriteFile(source, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := i.run("/run/x.sock", time.Minute); err != nil {
			t.Fatal(err)
		}
		installed := filepath.Join(i.BinDir, "kuryr-cni")
		data, err := os.ReadFile(installed)
		info, _ := os.Stat(installed)
		if diff := cmp.Diff(content, string(data)); err != nil || diff != "" || info.Mode() != 0o755 {
			t.Errorf("installed %v, %v (-want +got)\n%s", info.Mode(), err, diff)
		}
	}
	data, err := os.ReadFile(filepath.Join(i.ConfDir, ConfFile))
	if err != nil || !strings.Contains(string(data), `"timeout": "1m15s"`) {
		t.Errorf("%s: %s, %v", ConfFile, data, err)
	}
	i.Version = "1.1.0"
	if err := i.run("/run/x.sock", time.Minute); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(i.ConfDir, ConfFile)); err != nil || !strings.Contains(string(data), `"cniVersion": "1.1.0"`) {
		t.Errorf("%s: %s, %v; want version 1.1.0", ConfFile, data, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*", ".tmp-"+"*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// BenchmarkShim measures kuryr-cni from start to result, with a driver that takes no time. That
// is what Kuryr itself adds to an ADD and a DEL.
func BenchmarkShim(b *testing.B) {
	n := newNode(b).start()
	n.api.put(kuryrPort(portA, uidA))
	n.eventually("the port is seen", func() bool { return n.daemon.ports.port(portA) != (*v1.KuryrPort)(nil) })
	for _, bench := range []struct {
		name  string
		stdin string
		env   []string
	}{
		{"VERSION", "", []string{"CNI_COMMAND=VERSION"}},
		{"STATUS", conf(n, "1.1.0", ""), env("STATUS", "", "")},
		{"ADD", conf(n, "1.0.0", ""), env("ADD", "c1", "/run/netns/a")},
	} {
		b.Run(bench.name, func(b *testing.B) {
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				started := time.Now()
				if out, err := execute(b, bench.stdin, bench.env...); err != nil {
					b.Fatalf("%v, %s", err, out)
				}
				took = append(took, time.Since(started))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
	b.Run("ADD-daemon-only", func(b *testing.B) {
		for b.Loop() {
			if _, err := n.call(b.Context(), request("ADD", "c1", "/run/netns/a")); err != nil {
				b.Fatal(err)
			}
		}
	})
}
