// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// build builds one of the project's commands and returns its path.
func build(t testing.TB, command string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), command)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../cmd/"+command).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", command, err, out)
	}
	return path
}

// output runs a command and returns what it printed.
func output(t testing.TB, name string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	t.Logf("$ %s %s\n%s", filepath.Base(name), strings.Join(args, " "), out)
	return string(out), err
}

// A pool is listed, filled, shown and freed by kubectl.
func TestKubectlKuryr(t *testing.T) {
	f := onBed(t)
	t.Setenv("PATH", filepath.Dir(build(t, "kubectl-kuryr"))+":"+os.Getenv("PATH"))
	pools := func(args ...string) (string, error) {
		return output(t, "kubectl", append([]string{"kuryr", "pools"}, args...)...)
	}
	f.pools(t, map[string]any{"min": 0, "max": 4, "batch": 3, "ttl": "1h"})
	pod := f.on(t, "n1", "first")
	pool := must(f.KuryrPortOf(t.Context(), pod))(t).Spec.Pool
	lists := func(free int) {
		t.Helper()
		// The cluster's DNS may be on that node, too.
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^%s +n1 +%d +[1-9][0-9]* +0 +0 +0 +4 +Ready `, pool, free))
		eventually(t, func() error {
			out, err := pools("list", "--node", "n1")
			if err == nil && !row.MatchString(out) {
				err = fmt.Errorf("no row is like %q", row)
			}
			return err
		})
	}
	lists(0)

	if out, err := pools("fill", pool, "--ports", "5"); err == nil || !strings.Contains(out, "keeps at most 4") {
		t.Errorf("a pool with max 4 is to be filled with 5: %v", err)
	}
	if out := must(pools("fill", pool, "--ports", "3", "--wait"))(t); !strings.Contains(out, "pool "+pool+": filled, 3 are free") {
		t.Error("fill does not say that the pool is filled")
	}
	free := f.keeps(t, "n1", 3)
	lists(3)
	shown := must(pools("show", pool))(t)
	for _, want := range append(slices.Clone(free), f.namespace+"/first", "min 0, max 4, batch 3, ttl 1h") {
		if !strings.Contains(shown, want) {
			t.Errorf("show does not tell of %q", want)
		}
	}

	if out := must(pools("free", pool))(t); !strings.Contains(out, "deleted 3 free ports") {
		t.Error("free does not say that it deleted 3 ports")
	}
	f.keeps(t, "n1", 0)
	eventually(t, func() error {
		for _, id := range free {
			if err := f.gone(t, id); err != nil {
				return err
			}
		}
		return nil
	})
	lists(0)
}

// Free ports of a Kuryr that kept no objects are taken over before a controller
// runs: those on a node serve its pods, those that no pool can be told of go, and
// what may be another's stays.
func TestAdopt(t *testing.T) {
	f := onBed(t)
	kuryr := build(t, "kuryr")
	f.atRest(t)
	f.pools(t, map[string]any{"min": 0, "batch": 1, "ttl": "1h", "cooldown": "0s"})
	adopt := func(args ...string) (string, error) {
		return output(t, kuryr, append([]string{"adopt", "--config", f.configFile(t)}, args...)...)
	}
	if out, err := adopt("--yes"); err == nil || !strings.Contains(out, "a controller leads") {
		t.Fatalf("ports are adopted beside a controller that leads: %v", err)
	}
	f.scaleController(t, 0)
	t.Cleanup(func() { f.scaleController(t, 1) })
	network, project := os.Getenv("POD_NET"), os.Getenv("PROJECT")
	good := []string{f.leftover(t, project, network, "n1"), f.leftover(t, project, network, "n1")}
	slices.Sort(good)
	nowhere := f.leftover(t, project, network, "")
	elsewhere := f.leftover(t, project, network, "gateway")
	others := f.leftover(t, f.anotherProject(t), network, "")

	if out := must(adopt())(t); !strings.Contains(out, "Nothing was done") || !strings.Contains(out, "4 ports: 2 to adopt, 1 to delete, 1 to leave.") {
		t.Error("the plan is not as it should be")
	}
	if out := must(adopt("--yes"))(t); !strings.Contains(out, "Adopted 2 ports, deleted 1.") {
		t.Error("what was done is not what was planned")
	}
	if err := f.gone(t, nowhere); err != nil {
		t.Errorf("of a port on no host: %v", err)
	}
	f.scaleController(t, 1)
	if free := f.keeps(t, "n1", 2); !slices.Equal(free, good) {
		t.Errorf("n1 has free ports %q, want those that were adopted: %q", free, good)
	}
	pod := f.on(t, "n1", "pod")
	f.has(t, pod, good)
	f.reaches(t, f.on(t, "n2", "peer"), pod)
	for _, id := range []string{elsewhere, others} {
		if port := must(f.Port(t.Context(), id))(t); port.Description != "" {
			t.Errorf("port %s, which is not this cluster's, was marked %q", id, port.Description)
		}
	}
}

// gone returns an error unless Neutron has no port of this ID.
func (f *fixture) gone(t testing.TB, id string) error {
	_, err := f.Port(t.Context(), id)
	switch {
	case gophercloud.ResponseCodeIs(err, http.StatusNotFound):
		return nil
	case err == nil:
		return fmt.Errorf("port %s is still in Neutron", id)
	}
	return err
}

// configFile writes Kuryr's configuration, as it is now, to a file.
func (f *fixture) configFile(t testing.TB) string {
	t.Helper()
	cm := &corev1.ConfigMap{}
	if err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: kuryrNamespace, Name: "kuryr-config"}, cm); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kuryr.yaml")
	if err := os.WriteFile(path, []byte(cm.Data["kuryr.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// leftover makes a free port as an earlier Kuryr left it, on a host or on none.
func (f *fixture) leftover(t testing.TB, project, network, host string) string {
	t.Helper()
	port := must(ports.Create(t.Context(), f.Neutron, portsbinding.CreateOptsExt{
		CreateOptsBuilder: ports.CreateOpts{
			NetworkID: network, ProjectID: project, Name: "available-port", DeviceOwner: "compute:kuryr", SecurityGroups: &[]string{},
		},
		HostID: host,
	}).Extract())(t)
	t.Cleanup(func() {
		err := ports.Delete(context.Background(), f.Neutron, port.ID).ExtractErr()
		if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			t.Error(err)
		}
	})
	return port.ID
}

// anotherProject returns a project of nobody's, and has the security group removed
// that Neutron makes with its first port.
func (f *fixture) anotherProject(t testing.TB) string {
	t.Helper()
	const id = "e2e0e2e0e2e0e2e0e2e0e2e0e2e0e2e0"
	t.Cleanup(func() {
		ctx := context.Background()
		pages, err := groups.List(f.Neutron, groups.ListOpts{ProjectID: id}).AllPages(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		all, err := groups.ExtractGroups(pages)
		for _, g := range all {
			if err == nil {
				err = groups.Delete(ctx, f.Neutron, g.ID).ExtractErr()
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	return id
}
