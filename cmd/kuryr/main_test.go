// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// asKuryr has the test's binary be kuryr.
const asKuryr = "KURYR_TEST_AS_KURYR"

// TestMain gives the libraries their logger before anything of theirs runs, as a
// process does: tests have commands start while clients of their own are at work.
//
// A test's own binary is the command kuryr for processes that it starts with this variable.
func TestMain(m *testing.M) {
	if os.Getenv(asKuryr) != "" {
		main()
		return
	}
	logger, err := logging{level: 1, format: "text"}.logger(&logs)
	if err != nil {
		panic(err)
	}
	giveLogger(logr.NewContext(context.Background(), logger))
	m.Run()
}

func TestLoggingTakesLevelAndFormat(t *testing.T) {
	for _, c := range []struct {
		l    logging
		want string
	}{
		{logging{level: 0, format: "text"}, "msg=zero pool=a"},
		{logging{level: 1, format: "text"}, "msg=zero pool=a|msg=one pool=a"},
		{logging{level: 1, format: "json"}, `"msg":"zero","pool":"a"}|"msg":"one","pool":"a"}`},
	} {
		var out bytes.Buffer
		logger, err := c.l.logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		for i, message := range []string{"zero", "one", "two"} {
			logger.V(i).Info(message, "pool", "a")
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		want := strings.Split(c.want, "|")
		if len(lines) != len(want) {
			t.Fatalf("%+v: got %d lines, want %d:\n%s", c.l, len(lines), len(want), &out)
		}
		for i := range want {
			if !strings.HasSuffix(lines[i], want[i]) {
				t.Errorf("%+v: got %s, want it to end in %s", c.l, lines[i], want[i])
			}
		}
	}
}

func TestFlagsAreChecked(t *testing.T) {
	faultless := filepath.Join(t.TempDir(), "kuryr.yaml")
	text := "apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\npods: {subnetIDs: [7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11]}\n"
	if err := os.WriteFile(faultless, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"controller --config=/nowhere/kuryr.yaml":                                 "--config: reading configuration: open /nowhere/kuryr.yaml: no such file",
		"daemon --node-name=n --config=/nowhere/kuryr.yaml":                       "--config: reading configuration: open /nowhere/kuryr.yaml: no such file",
		"controller --kubeconfig=/nowhere/config --config=" + faultless:           "--kubeconfig (or KUBECONFIG) /nowhere/config: reaching the Kubernetes API: stat",
		"daemon --node-name=n --kubeconfig=/nowhere/config --config=" + faultless: "--kubeconfig (or KUBECONFIG) /nowhere/config: reaching the Kubernetes API: stat",
		"controller --kubeconfig= --config=" + faultless:                          "outside of a pod, give --kubeconfig",
		"daemon --log-level=-1":                                                   "--log-level is -1: write 0 to 3",
		"daemon --log-format=xml":                                                 `--log-format is "xml": write text or json`,
		"daemon --node-name= surplus":                                             `unknown command "surplus" for "kuryr daemon"`,
		"controller surplus":                                                      `unknown command "surplus" for "kuryr controller"`,
		"deamon":                                                                  `unknown command "deamon" for "kuryr"`,
	} {
		root := rootCommand()
		root.SetArgs(strings.Fields(args))
		root.SetOut(new(bytes.Buffer))
		root.SetErr(new(bytes.Buffer))
		err := root.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("kuryr %s: got %v, want %s", args, err, want)
		}
	}
}

// What Go has recorded is what --version says.
func TestVersion(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("a test without Go's record of its build")
	}
	var out bytes.Buffer
	root := rootCommand()
	root.SetArgs([]string{"--version"})
	root.SetOut(&out)
	if err := root.ExecuteContext(t.Context()); err != nil || out.String() != "kuryr version "+info.Main.Version+"\n" {
		t.Errorf("kuryr --version: got %q, %v", &out, err)
	}
}
