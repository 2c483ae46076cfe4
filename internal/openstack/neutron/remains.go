// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// remnants are the kinds that carry a mark.
var remnants = map[sdn.RemnantKind]kind{
	sdn.RemnantFloatingIP: floatingKind, sdn.RemnantPort: portKind, sdn.RemnantNetwork: networkKind,
	sdn.RemnantSubnet: subnetKind, sdn.RemnantRouter: routerKind, sdn.RemnantSecurityGroup: groupKind,
}

type wireRemnant struct {
	resource
	Address string    `json:"floating_ip_address"`
	Changed time.Time `json:"updated_at"` // zero: this Neutron does not tell
}

// Marked returns all of Neutron's resources with this cluster's mark, with one list of each kind.
func (b *Neutron) Marked(ctx context.Context) ([]sdn.Remnant, error) {
	var out []sdn.Remnant
	for what, k := range remnants {
		fields := []string{"id", "name", "description", "project_id", "updated_at"}
		if k == floatingKind {
			fields[1] = "floating_ip_address" // it has no name
		}
		all, err := listOwn[wireRemnant](ctx, b, k, nil, fields...)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", k.many, err)
		}
		for _, w := range all {
			out = append(out, sdn.Remnant{Kind: what, ID: w.ID, Name: w.Name + w.Address, Owner: w.mark().Owner, ProjectID: w.ProjectID, Changed: w.Changed})
		}
	}
	return out, nil
}
