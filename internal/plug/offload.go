// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"fmt"

	"github.com/safchain/ethtool"
)

// checksums are the features that leave a packet's checksum to the hardware.
var checksums = []string{"tx-checksum-ip-generic", "tx-checksum-sctp"}

// checksumInSoftware makes the kernel complete the checksums of packets that leave by device.
// Between devices of one kernel it leaves them incomplete. The kernel's own switches know that, and
// a switch in user space does not: Open vSwitch 3.1 drops such TCP and UDP packets as invalid in
// its connection tracking. This also switches off segmentation offload.
func checksumInSoftware(device string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("opening ethtool: %w", err)
	}
	defer e.Close()
	known, err := e.FeatureNames(device)
	if err != nil {
		return fmt.Errorf("listing the offloads of %s: %w", device, err)
	}
	off := map[string]bool{}
	for _, name := range checksums {
		if _, ok := known[name]; ok {
			off[name] = false
		}
	}
	if err := e.Change(device, off); err != nil {
		return fmt.Errorf("switching checksum offload of %s off: %w", device, err)
	}
	return nil
}

func verifyChecksumInSoftware(device string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("opening ethtool: %w", err)
	}
	defer e.Close()
	features, err := e.Features(device)
	if err != nil {
		return fmt.Errorf("listing the offloads of %s: %w", device, err)
	}
	for _, name := range checksums {
		if features[name] {
			return fmt.Errorf("%s has %s on, and the bridge's data path is in user space", device, name)
		}
	}
	return nil
}
