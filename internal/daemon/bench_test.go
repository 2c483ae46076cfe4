// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/kuryr-go/kuryr/internal/plug"
)

const benchBridge = "kuryrbench0"

// BenchmarkPlug is kuryr-cni from start to result with real network namespaces
// and a Linux bridge, and, if CNI_PATH names a directory with them, the
// reference plugins bridge and host-local in the same run. The port is known
// beforehand. Run it in a network namespace of its own: unshare -n.
func BenchmarkPlug(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("SKIPPED: makes network namespaces, which needs root")
	}
	ip(b, "link", "add", benchBridge, "type", "bridge")
	b.Cleanup(func() { ip(b, "link", "del", benchBridge) })
	ip(b, "link", "set", benchBridge, "up")
	set := plug.New(plug.Config{Bridge: benchBridge})
	b.Cleanup(set.Close)
	n := newNode(b)
	ctx, stop := context.WithCancel(logr.NewContext(context.Background(), logr.Discard()))
	o := Options{Node: "n1", Socket: n.socket(), API: n.api, Drivers: set}
	o.Settings.StateDir, o.Settings.AddTimeout.Duration = filepath.Join(n.dir, "state"), time.Minute
	d, err := New(ctx, o)
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	b.Cleanup(func() { stop(); <-ended })
	n.eventually("the daemon listens", func() bool { _, err := os.Stat(n.socket()); return err == nil })
	plugin, err := plugin()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("kuryr", func(b *testing.B) { benchPlugin(b, plugin, conf(n, "1.0.0", "")) })
	logStages(b, d)
	if dir := os.Getenv("CNI_PATH"); dir != "" {
		b.Run("reference", func(b *testing.B) {
			benchPlugin(b, filepath.Join(dir, "bridge"), fmt.Sprintf(`{"cniVersion":"1.0.0","name":"ref","type":"bridge","bridge":"kuryrref0",`+
				`"ipam":{"type":"host-local","dataDir":%q,"subnet":"10.77.0.0/16"}}`, b.TempDir()))
		})
		_ = exec.Command("ip", "link", "del", "kuryrref0").Run()
	}
}

// benchPlugin adds and deletes sandboxes, and measures the ADDs.
func benchPlugin(b *testing.B, plugin, stdin string) {
	var took []time.Duration
	for i := range b.N {
		name := fmt.Sprint("kuryrbench", i)
		ip(b, "netns", "add", name)
		env := []string{
			"CNI_CONTAINERID=" + name, "CNI_NETNS=/run/netns/" + name, "CNI_IFNAME=eth0", "CNI_PATH=" + os.Getenv("CNI_PATH"),
			fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;PORT_UUID=%08x-7495-4557-b7fc-3e293508dbc6;PORT_TYPE=bridge;IPV4=10.76.%d.%d/16;MAC=fa:16:3e:00:%02x:%02x;GW=10.76.255.254",
				i, i/250, i%250+1, i/250, i%250),
		}
		for _, command := range []string{"ADD", "DEL"} {
			cmd := exec.Command(plugin)
			cmd.Env = append([]string{"CNI_COMMAND=" + command, "PATH=" + os.Getenv("PATH")}, env...)
			cmd.Stdin = strings.NewReader(stdin)
			started := time.Now()
			if out, err := cmd.Output(); err != nil {
				b.Fatalf("%s: %v, %s", command, err, out)
			}
			if command == "ADD" {
				took = append(took, time.Since(started))
			}
		}
		ip(b, "netns", "del", name)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ADD-p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ADD-p99-ms")
}

// logStages logs the mean time of each stage, as the daemon's own metrics say.
func logStages(b *testing.B, d *Daemon) {
	families, err := d.metrics.registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kuryr_cni_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			b.Logf("%s %s: mean %.2f ms", m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), 1000*h.GetSampleSum()/float64(h.GetSampleCount()))
		}
	}
}

func ip(b *testing.B, args ...string) {
	b.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		b.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
