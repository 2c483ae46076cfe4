// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodetest runs tests inside a network namespace that takes the place of a node. Their
// devices, bridges and tables are separate, and end with the namespace. Only tests import it.
package nodetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

const inNode = "KURYR_TEST_IN_NODE"

// Main runs all tests of a package in such a namespace, as its TestMain. Without root the tests
// run outside.
func Main(m *testing.M) {
	if os.Getenv(inNode) != "" || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	self := again(os.Args[1:]...)
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := self.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "running the tests in a network namespace:", err)
		os.Exit(1)
	}
}

// Need skips a test that does not run in such a namespace, in a package with Main.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(inNode) == "" {
		t.Skip("SKIPPED: needs root, for network namespaces of its own")
	}
}

// Inside is for a single test of a package without Main. It runs the test a second time, in such
// a namespace. It returns true in that second run.
func Inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNode) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		Need(t)
	}
	if out, err := again("-test.run=^"+t.Name()+"$", "-test.v").CombinedOutput(); err != nil {
		t.Errorf("in a network namespace: %v\n%s", err, out)
	}
	return false
}

func again(args ...string) *exec.Cmd {
	self := exec.Command("/proc/self/exe", args...)
	self.Env = append(os.Environ(), inNode+"=1")
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	return self
}
