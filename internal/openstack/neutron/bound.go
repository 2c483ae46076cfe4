// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// bound returns the ports that Neutron has bound to their host, and deletes the others.
func (b *Neutron) bound(ctx context.Context, made []wirePort, r sdn.PortRequest) ([]wirePort, error) {
	if r.Host == "" {
		return made, nil
	}
	made, err := b.awaitBinding(ctx, made, r)
	if err != nil {
		return nil, b.undo(ctx, made, err)
	}
	var good, bad []wirePort
	for _, w := range made {
		if hybrid(w) && (r.VIFType == "" || r.VIFType == "ovs") {
			return nil, b.undo(ctx, made, fmt.Errorf("%w: %w: security groups would not be enforced on host %q: its neutron-openvswitch-agent filters "+
				"in a Linux bridge between port and switch (ovs_hybrid_plug), which Kuryr does not make. Set firewall_driver = openvswitch in the "+
				"section [securitygroup] of the agent's configuration, and restart the agent",
				sdn.ErrUnsupported, sdn.ErrInvalid, r.Host))
		}
		if w.VIFType == vifFailed || (w.VIFType == vifUnbound || w.VIFType == "") && r.VIFType == "" {
			bad = append(bad, w)
		} else {
			good = append(good, w)
		}
	}
	switch {
	case len(bad) == 0:
		return good, nil
	case bad[0].VIFType == "":
		err = fmt.Errorf("%w: Neutron does not show this credential binding:vif_type; binding ports to hosts needs admin, or a policy that allows it",
			sdn.ErrForbidden)
	default:
		err = fmt.Errorf("%w: Neutron answers %s for host %q; check that a network agent or chassis of exactly this name exists and is alive (openstack network agent list --host %s), and that the network reaches it",
			sdn.ErrUnbound, bad[0].VIFType, r.Host, r.Host)
	}
	return good, b.undo(ctx, bad, err)
}

// awaitBinding reads once more the ports that the creating call's answer shows as unbound: some
// releases write that answer before they bind.
func (b *Neutron) awaitBinding(ctx context.Context, made []wirePort, r sdn.PortRequest) ([]wirePort, error) {
	unbound := func(w wirePort) bool { return w.VIFType == vifUnbound }
	if r.VIFType != "" || !slices.ContainsFunc(made, unbound) {
		return made, nil
	}
	made, err := b.lookAgain(ctx, made)
	if err != nil {
		err = fmt.Errorf("cannot read whether they are bound: %w", err)
	}
	return made, err
}

// lookAgain returns the current state of ports of one POST. A deleted port keeps its old state.
// After an error all ports do.
func (b *Neutron) lookAgain(ctx context.Context, ports []wirePort) ([]wirePort, error) {
	query := url.Values{"fields": portFields}
	for _, w := range ports {
		query.Add("id", w.ID)
	}
	var again portsBody
	if err := b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"ports"}, Query: query, Out: &again, Creates: true}); err != nil {
		return ports, err
	}
	out := slices.Clone(ports)
	for _, now := range again.Ports {
		if i := slices.IndexFunc(out, func(w wirePort) bool { return w.ID == now.ID }); i >= 0 {
			out[i] = now
		}
	}
	return out, nil
}
