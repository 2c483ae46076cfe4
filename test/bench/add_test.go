// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench measures whole executables as the container runtime starts
// them: `make bench` runs it as root. docs/performance.md has the figures.
package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

const (
	node = "bench"
	// ports that the node has: what is measured is a pod on a node in use.
	portsOnNode = 100
)

// BenchmarkAdd measures ADD around the executable, from start to exit: Kuryr's,
// with a port already bound to the pod, plugged anew and from the parking, and the
// reference plugins bridge and host-local, all on a Linux bridge. It accounts for the mean:
// what the daemon says of its stages; what else it did (daemon-other); and what
// is outside of it (around), the start and end of the executable and the socket,
// for which STATUS is a measure: it goes the same way and does next to nothing.
func BenchmarkAdd(b *testing.B) {
	alone(b)
	b.Run("kuryr", func(b *testing.B) { benchmarkKuryr(b, false) })
	b.Run("kuryr-parked", func(b *testing.B) { benchmarkKuryr(b, true) })
	b.Run("reference", benchmarkReference)
}

// BenchmarkStart measures how long kuryr-cni takes to start and to answer by
// itself.
func BenchmarkStart(b *testing.B) {
	plugin := build(b, "kuryr-cni")
	var times []time.Duration
	for b.Loop() {
		command := exec.Command(plugin)
		command.Env = []string{"CNI_COMMAND=VERSION"}
		command.Stdin = strings.NewReader(`{"cniVersion": "1.1.0"}`)
		began := time.Now()
		if out, err := command.CombinedOutput(); err != nil {
			b.Fatalf("VERSION: %v: %s", err, out)
		}
		times = append(times, time.Since(began))
	}
	report(b, times)
}

// benchmarkKuryr has the ports bound from the beginning, or only after the daemon
// has parked them.
func benchmarkKuryr(b *testing.B, parked bool) {
	dir := b.TempDir()
	kubeconfig, bind := apiServer(b, parked)
	plugin, socket := build(b, "kuryr-cni"), filepath.Join(dir, "cni.sock")
	config := filepath.Join(dir, "kuryr.yaml")
	write(b, config, `{apiVersion: kuryr.openstack.org/v1alpha1, kind: KuryrConfiguration,
		pods: {subnetIDs: [6a2e1c9c-0000-4000-8000-000000000000]},
		node: {ovsdb: "", bridge: kuryr-bench, stateDir: `+dir+`, park: `+strconv.FormatBool(parked)+`}}`)
	parking := filepath.Join(dir, "kuryr-parking")
	b.Cleanup(func() { _ = unix.Unmount(parking, unix.MNT_DETACH) })
	metrics := freeAddress(b)
	kubeconfigFile := filepath.Join(dir, "kubeconfig")
	write(b, kubeconfigFile, string(kubeconfig))
	daemon := exec.Command(build(b, "kuryr"), "daemon", "--config", config, "--kubeconfig", kubeconfigFile,
		"--node-name", node, "--socket", socket, "--parking-netns", parking, "--health-probe-bind-address", "0", "--metrics-bind-address", metrics)
	log := &bytes.Buffer{}
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stop(b, daemon, log) })

	conf := `{"cniVersion": "1.0.0", "name": "kuryr", "type": "kuryr-cni", "socket": "` + socket + `"}`
	call := func(command string, n int, netnsPath string) error {
		return plugIn(plugin, command, conf, fmt.Sprintf("sandbox-%d", n), netnsPath,
			fmt.Sprintf("K8S_POD_NAMESPACE=bench;K8S_POD_NAME=pod-%d;K8S_POD_UID=uid-%d", n, n))
	}
	status := func() error { return plugIn(plugin, "STATUS", strings.Replace(conf, "1.0.0", "1.1.0", 1), "", "", "") }
	ready := time.Now().Add(30 * time.Second)
	for {
		err := status()
		if err == nil {
			break
		}
		if time.Now().After(ready) {
			b.Fatalf("the daemon is not ready: %v\n%s", err, log)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if parked {
		for end := time.Now().Add(60 * time.Second); numbers(b, metrics)["kuryr_cni_parked_ports"] < portsOnNode; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				b.Fatalf("the daemon does not park all ports\n%s", log)
			}
		}
		bind()
	}
	before := numbers(b, metrics)
	reportStages(b, metrics, measure(b, call))
	after := numbers(b, metrics)
	for from, want := range map[string]bool{"parking": parked, "anew": !parked} {
		name := `kuryr_cni_plugged_total{from="` + from + `"}`
		if got := after[name] > before[name]; got != want {
			b.Errorf("%s went from %v to %v\n%s", name, before[name], after[name], log)
		}
	}
	var there []time.Duration
	for range 100 {
		began := time.Now()
		if err := status(); err != nil {
			b.Fatalf("STATUS: %v", err)
		}
		there = append(there, time.Since(began))
	}
	b.ReportMetric(mean(there), "status-mean-ms")
	b.ReportMetric(float64(resident(b, daemon.Process.Pid))/(1<<20), "daemon-MiB")
}

func benchmarkReference(b *testing.B) {
	dir := os.Getenv("KURYR_BED")
	if dir == "" {
		dir = "/var/tmp/kuryr-bed"
	}
	dir = filepath.Join(dir, "bin", "cni")
	plugin := filepath.Join(dir, "bridge")
	if _, err := os.Stat(plugin); err != nil {
		b.Skipf("no reference plugins: hack/bed/bed build node makes them (%v)", err)
	}
	conf := `{"cniVersion": "1.0.0", "name": "reference", "type": "bridge", "bridge": "reference", "isGateway": true,
		"ipam": {"type": "host-local", "dataDir": "` + b.TempDir() + `", "ranges": [[{"subnet": "10.33.0.0/16"}]],
		"routes": [{"dst": "0.0.0.0/0"}]}}`
	b.Setenv("CNI_PATH", dir)
	measure(b, func(command string, n int, netnsPath string) error {
		return plugIn(plugin, command, conf, fmt.Sprintf("reference-%d", n), netnsPath, "")
	})
}

// measure calls ADD on new sandboxes, and DEL outside of the time taken. It
// returns the mean of the ADDs in milliseconds.
func measure(b *testing.B, call func(command string, n int, netnsPath string) error) float64 {
	var times []time.Duration
	for n := 0; b.Loop(); n++ {
		n := n % portsOnNode
		sandbox := newSandbox(b, n)
		began := time.Now()
		if err := call("ADD", n, sandbox); err != nil {
			b.Fatalf("ADD: %v", err)
		}
		times = append(times, time.Since(began))
		if err := call("DEL", n, sandbox); err != nil {
			b.Fatalf("DEL: %v", err)
		}
		if err := netns.DeleteNamed(filepath.Base(sandbox)); err != nil {
			b.Fatal(err)
		}
	}
	report(b, times)
	return mean(times)
}

// report adds the median and the 99th percentile of single calls.
func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(times[(len(times)-1)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
	b.ReportMetric(mean(times), "mean-ms")
	b.ReportMetric(0, "ns/op") // would mix in DEL and the making of sandboxes
}

// mean is in milliseconds.
func mean(times []time.Duration) float64 {
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	return sum.Seconds() * 1000 / float64(len(times))
}

// reportStages adds the mean time of each stage of an ADD, as the daemon's own
// metrics have it, and what they leave over of the mean of the whole.
func reportStages(b *testing.B, metrics string, whole float64) {
	response, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	sums, counts := map[string]float64{}, map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		for prefix, into := range map[string]map[string]float64{
			`kuryr_cni_duration_seconds_sum{command="ADD",stage="`: sums, `kuryr_cni_duration_seconds_count{command="ADD",stage="`: counts,
		} {
			rest, ok := strings.CutPrefix(lines.Text(), prefix)
			stage, value, found := strings.Cut(rest, `"} `)
			if !ok || !found {
				continue
			}
			if into[stage], err = strconv.ParseFloat(value, 64); err != nil {
				b.Fatal(err)
			}
		}
	}
	if counts["total"] == 0 {
		b.Fatal("the daemon's metrics tell of no ADD")
	}
	other := 0.0
	for stage, sum := range sums {
		took := 1000 * sum / counts[stage]
		if stage == "total" {
			other += took
			b.ReportMetric(whole-took, "around-mean-ms")
			continue
		}
		other -= took
		b.ReportMetric(took, stage+"-mean-ms")
	}
	b.ReportMetric(other, "daemon-other-mean-ms")
}

// numbers are the daemon's metrics, by name and labels.
func numbers(b *testing.B, metrics string) map[string]float64 {
	response, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 {
			if value, err := strconv.ParseFloat(lines.Text()[i+1:], 64); err == nil {
				all[lines.Text()[:i]] = value
			}
		}
	}
	return all
}

// freeAddress is one that nobody listens on, most likely.
func freeAddress(b *testing.B) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func plugIn(plugin, command, conf, container, netnsPath, args string) error {
	c := exec.Command(plugin)
	c.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + container, "CNI_NETNS=" + netnsPath,
		"CNI_IFNAME=eth0", "CNI_PATH=" + cmp.Or(os.Getenv("CNI_PATH"), "/"), "CNI_ARGS=" + args, "PATH=" + os.Getenv("PATH")}
	c.Stdin = strings.NewReader(conf)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// alone makes sure that bridges and pods are made in a network namespace of the
// benchmark's own, which has no more than a loopback device.
func alone(b *testing.B) {
	b.Helper()
	links, err := net.Interfaces()
	if err != nil {
		b.Fatal(err)
	}
	if len(links) != 1 || os.Geteuid() != 0 {
		b.Skip("this is not a network namespace made for it: run `make bench` as root")
	}
	// kube-apiserver does not start without a default route.
	uplink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "nowhere"}
	for _, err := range []error{
		netlink.LinkAdd(uplink),
		netlink.AddrAdd(uplink, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}}),
		netlink.LinkSetUp(uplink),
		netlink.RouteAdd(&netlink.Route{LinkIndex: uplink.Index, Gw: net.IPv4(192, 0, 2, 254)}),
	} {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// newSandbox makes a network namespace, as a container runtime does for a pod,
// and returns its path.
func newSandbox(b *testing.B, n int) string {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		b.Fatal(err)
	}
	defer home.Close()
	name := fmt.Sprintf("kuryr-bench-%d-%d", os.Getpid(), n)
	handle, err := netns.NewNamed(name)
	if err != nil {
		b.Fatal(err)
	}
	defer handle.Close()
	if err := netns.Set(home); err != nil {
		b.Fatal(err)
	}
	return filepath.Join("/run/netns", name)
}

// apiServer starts a real API server with the node's ports, each bound to a
// pod, or, if they are free, by bind. It returns a kubeconfig for it.
func apiServer(b *testing.B, free bool) (kubeconfig []byte, bind func()) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		b.Skip("KUBEBUILDER_ASSETS is not set: hack/bed/bed build control makes kube-apiserver and etcd")
	}
	scheme := k8sruntime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	environment := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd"}, Scheme: scheme, ErrorIfCRDPathMissing: true}
	config, err := environment.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			b.Error(err)
		}
	})
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	for n := range portsOnNode {
		p := port(n)
		if free {
			p.Spec.PodRef = nil
		}
		if err := c.Create(context.Background(), p); err != nil {
			b.Fatal(err)
		}
		settle(b, c, p)
	}
	user, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	kubeconfig, err = user.KubeConfig()
	if err != nil {
		b.Fatal(err)
	}
	return kubeconfig, func() {
		for n := range portsOnNode {
			p := port(n)
			from := p.DeepCopy()
			from.Spec.PodRef = nil
			if err := c.Patch(context.Background(), p, client.MergeFrom(from)); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// settle says of a port what a controller does: the SDN has it as wanted.
func settle(b *testing.B, c client.Client, p *v1.KuryrPort) {
	b.Helper()
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
		Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "The port matches its spec.",
		ObservedGeneration: p.Generation,
	})
	if err := c.Status().Update(context.Background(), p); err != nil {
		b.Fatal(err)
	}
}

func port(n int) *v1.KuryrPort {
	return &v1.KuryrPort{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%08d-0000-4000-8000-000000000000", n)},
		Spec: v1.KuryrPortSpec{
			Pool: "bench", NodeName: node, NetworkID: "bench",
			VIF: v1.VIF{
				Type: "bridge", MACAddress: fmt.Sprintf("fa:16:3e:00:%02x:%02x", n>>8, n&0xff), MTU: 1442,
				Addresses: []v1.Address{{IP: fmt.Sprintf("10.34.%d.%d", n>>8, n&0xff), PrefixLength: 16, Gateway: "10.34.255.254"}},
			},
			PodRef: &v1.PodReference{
				Namespace: "bench", Name: fmt.Sprintf("pod-%d", n), UID: types.UID(fmt.Sprintf("uid-%d", n)),
				Interface: "eth0", Default: true,
			},
		},
	}
}

// build builds one of the project's executables once and returns its path.
func build(b *testing.B, name string) string {
	b.Helper()
	path := filepath.Join("..", "..", "bin", name)
	command := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "../../cmd/"+name)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		b.Fatalf("building %s: %v: %s", name, err, out)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		b.Fatal(err)
	}
	return path
}

func write(b *testing.B, path, content string) {
	b.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		b.Fatal(err)
	}
}

func stop(b *testing.B, daemon *exec.Cmd, log *bytes.Buffer) {
	_ = daemon.Process.Signal(os.Interrupt)
	if err := daemon.Wait(); err != nil {
		b.Errorf("the daemon ended with %v:\n%s", err, log)
	}
}

// resident is the memory that a process has in RAM, in bytes.
func resident(b *testing.B, pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	var kib int
	for _, line := range strings.Split(string(status), "\n") {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	b.Fatalf("no VmRSS in %s", status)
	return 0
}
