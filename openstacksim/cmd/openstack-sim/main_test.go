// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain is the command itself for tests that start it as a process.
func TestMain(m *testing.M) {
	if os.Getenv("OPENSTACK_SIM_TEST_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// start runs `openstack-sim serve` on a free port and returns its URL.
func start(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), "OPENSTACK_SIM_TEST_MAIN=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("reading the URL: %v", err)
	}
	return cmd, strings.TrimSpace(url)
}

// run is a command in this process, and what it printed.
func run(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func get(t *testing.T, url string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

func TestServe(t *testing.T) {
	clouds := filepath.Join(t.TempDir(), "clouds.yaml")
	cmd, url := start(t, "--write-clouds", clouds, "--dial", "identity GET /v3: [503]", "--dial", "identity GET /v3: [502, ok]")
	text, err := os.ReadFile(clouds)
	if err != nil || !strings.Contains(string(text), "auth_url: "+url+"/identity/v3") {
		t.Errorf("clouds.yaml is %s, %v", text, err)
	}
	// The first --dial wins for the first call; for the second, only the other one is left to say something.
	for _, want := range []int{503, 200, 200} {
		if got, err := get(t, url+"/identity/v3"); got != want {
			t.Errorf("GET /identity/v3: got %d %v, want %d", got, err, want)
		}
	}
	t.Setenv("OPENSTACK_SIM", url)
	report, err := run(t, "", "report")
	if err != nil || !strings.Contains(report, "versions") || !strings.Contains(report, "200×2 503×1") || !strings.Contains(report, "loadbalancers") {
		t.Errorf("the report is\n%s%v", report, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
}

// A dial ends the process after the effect, with its own exit status.
func TestStop(t *testing.T) {
	cmd, url := start(t, "--dial", "identity GET /v3: {from: 2, stop: before}")
	if got, err := get(t, url+"/identity/v3"); got != 200 {
		t.Fatalf("the first call: %d %v", got, err)
	}
	if got, err := get(t, url+"/identity/v3"); err == nil {
		t.Errorf("the second call was answered: %d", got)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitStopped {
		t.Errorf("ended with %v, want exit status %d", err, exitStopped)
	}
}

func TestDials(t *testing.T) {
	_, url := start(t)
	at := func(args ...string) []string { return append([]string{"dials", "--url", url}, args...) }
	if _, err := run(t, "calls: [{on: identity GET /v3, fault: 500}]", at("set", "-")...); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "calls: [{on: identity GET /v3, fault: 418}]", at("add", "-")...); err != nil {
		t.Fatal(err)
	}
	if got, err := run(t, "", at("get")...); err != nil || strings.Index(got, "418") > strings.Index(got, "500") {
		t.Errorf("what was added is not in front: %s%v", got, err)
	}
	if _, err := run(t, "calls: [{on: identity GET /v3}]\nmood: bad", at("set", "-")...); err == nil || !strings.Contains(err.Error(), "mood: unknown") {
		t.Errorf("a fault in a file is told as %v", err)
	}
	if got, _ := get(t, url+"/identity/v3"); got != 418 {
		t.Errorf("after a file with faults: got %d, want what was dialled before", got)
	}
	if _, err := run(t, "", at("reset")...); err != nil {
		t.Fatal(err)
	}
	if got, _ := get(t, url+"/identity/v3"); got != 200 {
		t.Errorf("after reset: got %d, want 200", got)
	}
}

func TestMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dials.yaml")
	if err := os.WriteFile(file, []byte("calls: 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--dials":                           {"serve", "--dials", "/nowhere/dials.yaml"},
		"line 1: calls: want a list":        {"serve", "--dials", file},
		"--dial: ":                          {"serve", "--dial", "everything: bad"},
		"--latency fast: write none or":     {"serve", "--latency", "fast"},
		"--listen: ":                        {"serve", "--listen", "nowhere:x"},
		"--write-clouds: ":                  {"serve", "--listen", "127.0.0.1:0", "--write-clouds", "/nowhere/clouds.yaml"},
		"--token-lifetime is 0s":            {"serve", "--token-lifetime", "0s"},
		"is no URL":                         {"serve", "--listen", "127.0.0.1:0", "--url", "localhost"},
		"--url: asking openstack-sim":       {"report", "--url", "http://127.0.0.1:1"},
		"unknown command \"serv\"":          {"serv"},
		"accepts 1 arg(s), received 0":      {"dials", "set"},
		"no such file":                      {"dials", "set", "/nowhere/dials.yaml"},
		"unsupported protocol scheme \"x\"": {"report", "--url", "x://y"},
	} {
		if _, err := run(t, "", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", strings.Join(args, " "), err, want)
		}
	}
}
