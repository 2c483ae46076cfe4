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
// the recordings in sim/simtest keep it. All is made and looked at as on a real
// cloud, by TestContractReal's means.
func TestContractSim(t *testing.T) {
	unplugged, err := dial.Parse([]byte("{ports: [{active: never}]}")) // no node plugs them
	must(t, err)
	cloud := openstacksim.Start(t, func(o *openstacksim.Options) { o.Dials = unplugged })
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	target := newReal(t).target(t)
	sdntest.Run(t, func(*testing.T) sdntest.Target { return target })
}
