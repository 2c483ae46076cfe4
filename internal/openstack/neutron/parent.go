// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// parents are the ports that carry others, on a trunk or by address pairs.
type parents struct {
	trunks atomic.Bool // a subport was seen or made
	mu     sync.Mutex
	at     map[string]*parent
	full   sdn.Answers[string, int] // with so many address pairs a parent had no room for a port's
}

// parent is the knowledge of one parent port. It is locked while its VLAN IDs or pairs are chosen
// and written.
type parent struct {
	turn  chan struct{}
	last  int32       // VLAN last given: one just given back is not given again at once
	trunk atomic.Bool // it has had a trunk
	there atomic.Bool // it was there, and has been asked for its address pairs
}

func (p *parents) of(id string) *parent {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = map[string]*parent{}
	}
	if p.at[id] == nil {
		p.at[id] = &parent{turn: make(chan struct{}, 1)}
	}
	return p.at[id]
}

func (p *parent) lock(ctx context.Context, patience time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-waiting.Done():
		return fmt.Errorf("waiting for another change of the same port: %w", session.Unanswered(waiting, waiting.Err()))
	}
}

func (p *parent) unlock() { <-p.turn }
