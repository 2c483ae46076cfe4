// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// choices decides in which subnets to make the ports of a request that names several for one
// address. Neutron accepts one subnet for each address, and for a full one it only reports that the
// network has no address. Subnets that had room last are tried first for a while. So a full subnet
// costs one refused request a minute, not one each time.
type choices struct {
	mu   sync.Mutex
	last map[string]session.Aged[[]string] // that had room, by what the request names
}

const (
	// mostChoices bounds how many are tried for one request.
	mostChoices = 32
	// choiceAge is how long it is until the first ones are tried again: there may be room.
	choiceAge = time.Minute
)

// of returns the choices in the order to try them in: the first of each address' subnets
// before others.
func (c *choices) of(r sdn.PortRequest) [][]string {
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
	if last := c.lately(r); last != nil {
		slices.SortStableFunc(out, func(a, b []string) int { return boolean(slices.Equal(b, last)) - boolean(slices.Equal(a, last)) })
	}
	return out
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *choices) lately(r sdn.PortRequest) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.last[strings.Join(r.SubnetIDs, " ")]; time.Since(last.Read) < choiceAge {
		return last.Value
	}
	return nil
}

// took records that these subnets had room while others were full.
func (c *choices) took(r sdn.PortRequest, ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.Join(r.SubnetIDs, " ")
	if was := c.last[key]; slices.Equal(was.Value, ids) && time.Since(was.Read) < choiceAge {
		return // or the first ones would not be tried again while ports are made
	}
	if c.last == nil {
		c.last = map[string]session.Aged[[]string]{}
	}
	c.last[key] = session.Aged[[]string]{Value: ids, Read: time.Now()}
}
