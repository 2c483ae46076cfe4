// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// TestControllerOutside: a controller that is no pod, started as config/systemd/kuryr-controller.service says,
// with the permissions of the ServiceAccount (docs/outside.md), shares the work with one in a pod. Each
// serves all alone while the other one is gone.
func TestControllerOutside(t *testing.T) {
	f := onBed(t)
	f.change(t, func(document map[string]any) { document["controllers"] = map[string]any{"active": 0} })
	t.Cleanup(func() { f.scaleController(t, 1) })
	unit := string(must(os.ReadFile("../../config/systemd/kuryr-controller.service"))(t))
	_, start, _ := strings.Cut(unit, "\nExecStart=")
	start, _, _ = strings.Cut(start, "\n")
	line := strings.NewReplacer("/usr/local/bin/kuryr", build(t, "kuryr"), "/etc/kuryr/kuryr.yaml", f.configFile(t),
		"%d/kubeconfig", f.kubeconfigOf(t, "kuryr-controller")).Replace(start)
	words := strings.Fields(line)
	log := must(os.Create(filepath.Join(t.TempDir(), "log")))(t)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		if t.Failed() {
			t.Logf("%s", must(os.ReadFile(log.Name()))(t))
		}
	})

	f.placed(t, 0)
	host := must(os.Hostname())(t)
	first := f.pods(t, "a", "b")
	f.scaleController(t, 0)
	f.ownsAll(t, host)
	second := f.pods(t, "c", "d")
	all(t, f.between(first[0], second[1]), f.between(second[0], first[1]))

	f.scaleController(t, 1)
	f.placed(t, 0)
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Logf("the one outside ended after %.1f s: %v", time.Since(began).Seconds(), err)
		if err != nil {
			t.Error(err)
		}
	case <-time.After(90 * time.Second): // TimeoutStopSec of the unit
		t.Error("it did not end")
	}
	f.ownsAll(t, "kuryr-controller-")
	third := f.pods(t, "e", "f")
	all(t, f.between(first[0], third[1]), f.between(third[0], second[1]))
	f.delete(t, append(append(first, second...), third...)...)
	f.atRest(t)
}

// ownsAll waits until one replica, whose identity begins like this, is the only one and owns all.
func (f *fixture) ownsAll(t testing.TB, identity string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := cluster.Until(ctx, func() error {
		members, table := f.sharing(t)
		for uid, name := range members {
			if len(members) == 1 && strings.HasPrefix(name, identity) && table.Owners[uid] == shard.All() {
				return nil
			}
		}
		return fmt.Errorf("of %v not only %s... owns all: %v", members, identity, table.Owners)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// kubeconfigOf writes a kubeconfig with a token of a ServiceAccount of Kuryr's.
func (f *fixture) kubeconfigOf(t testing.TB, account string) string {
	t.Helper()
	token := must(f.Kube.CoreV1().ServiceAccounts(kuryrNamespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	config := must(clientcmd.LoadFromFile(os.Getenv("KUBECONFIG")))(t)
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &api.AuthInfo{Token: token.Status.Token}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
