// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// TestContractSim runs the contract against the simulator, which is as true as
// the exchanges in openstacksim/internal/recorded keep it. All is made and looked at as on a real
// cloud, by TestContractReal's means.
func TestContractSim(t *testing.T) {
	unplugged, err := dial.Parse([]byte("{ports: [{active: never}]}")) // no node plugs them
	must(t, err)
	onEachRelease(t, func(t *testing.T, _ *openstacksim.Cloud) {
		target := newReal(t).target(t)
		sdntest.Run(t, func(*testing.T) sdntest.Target { return target })
	}, func(o *openstacksim.Options) { o.Dials = unplugged })
}

// onEachRelease runs a test on a new simulator of each release of OpenStack, which OS_CLOUD names.
func onEachRelease(t *testing.T, run func(*testing.T, *openstacksim.Cloud), change ...func(*openstacksim.Options)) {
	for _, release := range openstacksim.Releases {
		t.Run(release, func(t *testing.T) {
			cloud := openstacksim.Start(t, append(change, func(o *openstacksim.Options) { o.Release = release })...)
			t.Setenv("OS_CLOUD", "kuryr")
			t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
			run(t, cloud)
		})
	}
}
