// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"

	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// changeMembers changes the members of a pool. The cloud does all of a request or nothing. The
// removals are done in any case. Of the additions, as many are done as the quota has room for
// and the cloud does not refuse.
func (v *visit) changeMembers(ctx context.Context, s balancer.ChangeMembers) error {
	err := v.send(ctx, s)
	switch {
	case err == nil:
		v.memory.attempts.Accepted(s.Add)
	case errors.Is(err, sdn.ErrQuota):
		return errors.Join(err, v.changeSome(ctx, s))
	case errors.Is(err, sdn.ErrInvalid) && len(s.Add) > 0:
		v.memory.attempts.RefusedMembers(s.Add, sdn.RefusedMembers(err), v.Now(), v.Backoff.Min, v.Backoff.Rejected, err.Error())
		v.again(v.Backoff.Min)
		if len(s.Remove) == 0 {
			return nil // the next plan leaves the refused members out
		}
		s.Add = nil
		return v.send(ctx, s)
	case isRefusal(err) && len(s.Add) > 0 && len(s.Remove) > 0:
		return errors.Join(err, v.removeAlone(ctx, s))
	}
	return err
}

// removeAlone removes the members that go without adding those that come, as the cloud
// refuses both together. That it refuses this, too, is noted.
func (v *visit) removeAlone(ctx context.Context, s balancer.ChangeMembers) error {
	s.Add = nil
	err := v.send(ctx, s)
	if err == nil {
		v.round.did = append(v.round.did, s.String())
		v.await(s.LoadBalancerID)
	} else if isRefusal(err) {
		v.memory.attempts.Removed(s, v.Now(), v.Backoff.Min, err.Error())
		return nil // that is said already
	}
	return err
}

// changeSome changes as many members as the quota has room for. Removed members make room for
// as many new ones. Without removals it tries half of the additions, then half of that.
func (v *visit) changeSome(ctx context.Context, s balancer.ChangeMembers) error {
	less, err := s, error(nil)
	less.Add = nil // of a single member nothing less can be sent
	for n := max(len(s.Remove), len(s.Add)/2); n > 0; n /= 2 {
		less.Add = s.Add[:min(n, len(s.Add))]
		if err = v.send(ctx, less); !errors.Is(err, sdn.ErrQuota) {
			break
		}
		if len(s.Remove) >= n && len(s.Remove) > 0 {
			less.Add = nil
			err = v.send(ctx, less)
			break
		}
	}
	if err == nil && len(less.Add)+len(less.Remove) > 0 {
		v.round.did = append(v.round.did, less.String())
		v.await(s.LoadBalancerID)
	}
	if errors.Is(err, sdn.ErrQuota) {
		err = nil // the caller reports it already
	}
	return err
}
