// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// On a node that cannot park, attempts to park leave nothing, however many there are.
func TestNothingIsKeptOfAParkingThatCannotBe(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: making network namespaces needs root")
	}
	probe := probeParking
	t.Cleanup(func() { probeParking = probe })
	probeParking = func(*netlink.Handle) error { return errors.New("the kernel has no macvlan") }
	p := &parking{path: filepath.Join(t.TempDir(), "parking")}
	t.Cleanup(func() { _ = unix.Unmount(p.path, unix.MNT_DETACH) })
	for try := range 4 {
		lot, err := p.open()
		if lot != nil || !errors.Is(err, ErrCannotPark) {
			t.Fatalf("try %d: open = %v, %v; want ErrCannotPark", try, lot, err)
		}
		p.close() // must not close anything twice
	}
	probeParking = probe
	lot, err := p.open()
	if err != nil {
		t.Fatalf("once it can: %v", err)
	}
	again, err := p.open()
	if err != nil || again != lot {
		t.Errorf("open = %p, %v; want %p again", again, err, lot)
	}
	p.close()
}

// In a container of its own, a daemon parks only if the namespace outlives the container.
func TestParkInAContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: making mount namespaces needs root")
	}
	const env = "KURYR_TEST_PROPAGATION"
	dir := t.TempDir()
	if set := os.Getenv(env); set != "" { // this is the container
		p := &parking{path: filepath.Join(os.Getenv(env+"_DIR"), "netns", "kuryr-parking")}
		mountFor(t, filepath.Dir(p.path), set)
		_, err := p.open()
		p.close()
		if refused := errors.Is(err, ErrCannotPark); refused != (set != "shared") {
			t.Fatalf("open where mounts are %s = %v", set, err)
		}
		return
	}
	for _, set := range []string{"private", "slave", "shared"} {
		c := exec.Command("/proc/self/exe", "-test.run=^TestParkInAContainer$", "-test.v")
		c.Env = append(os.Environ(), env+"="+set, env+"_DIR="+dir, "KURYR_TEST_IN_NODE=1")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// mountFor makes dir a mount with that propagation.
func mountFor(t *testing.T, dir, propagation string) {
	t.Helper()
	flags := map[string][]uintptr{"private": {unix.MS_PRIVATE}, "slave": {unix.MS_SHARED, unix.MS_SLAVE}, "shared": {unix.MS_SHARED}}
	err := errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""), unix.Mount("none", dir, "tmpfs", 0, ""))
	for _, flag := range flags[propagation] {
		err = errors.Join(err, unix.Mount("", dir, "", flag, ""))
	}
	if err != nil {
		t.Fatal(err)
	}
}
