// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"slices"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

const (
	// mostChoices bounds how many are tried for one request.
	mostChoices = 32
	// choiceAge is how long it is until the first ones are tried again: there may be room.
	choiceAge = time.Minute
)

// choicesOf returns the choices of subnets in which to make the ports of a request that names several
// for one address, in the order to try them in: the first of each address' subnets before others.
// Neutron accepts one subnet for each address, and for a full one it only reports that the network has
// no address. Subnets that had room last are tried first for a while. So a full subnet costs one
// refused request a minute, not one each time.
func (b *Neutron) choicesOf(r sdn.PortRequest) [][]string {
	out := [][]string{nil}
	for _, id := range r.SubnetIDs {
		var longer [][]string
		for _, one := range append([]string{id}, r.MoreSubnetIDs[id]...) {
			for _, ids := range out {
				longer = append(longer, append(slices.Clone(ids), one))
			}
		}
		out = longer[:min(len(longer), mostChoices)]
	}
	last, _, _ := b.roomy.Fresh(strings.Join(r.SubnetIDs, " "))
	if i := slices.IndexFunc(out, func(ids []string) bool { return slices.Equal(ids, last) }); i > 0 {
		out = slices.Insert(slices.Delete(out, i, i+1), 0, last)
	}
	return out
}

// took records that these subnets had room while others were full. It does not renew what is known:
// the first ones would not be tried again while ports are made.
func (b *Neutron) took(r sdn.PortRequest, ids []string) {
	key := strings.Join(r.SubnetIDs, " ")
	if last, _, _ := b.roomy.Fresh(key); !slices.Equal(last, ids) {
		b.roomy.Keep(key, ids, choiceAge)
	}
}
