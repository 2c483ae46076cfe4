// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// On a node that cannot park nothing is kept of the try, however often it is made.
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
		p.close() // closes nothing twice
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
