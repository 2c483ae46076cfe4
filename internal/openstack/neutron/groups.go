// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

type wireGroup struct {
	resource
	Rules []wireRule `json:"security_group_rules"`
}

type wireRule struct {
	ID            string  `json:"id"`
	Direction     string  `json:"direction"`
	EtherType     string  `json:"ethertype"`
	Protocol      string  `json:"protocol"`
	PortMin       *int32  `json:"port_range_min"`
	PortMax       *int32  `json:"port_range_max"`
	RemotePrefix  string  `json:"remote_ip_prefix"`
	RemoteGroup   *string `json:"remote_group_id"`
	RemoteAddress *string `json:"remote_address_group_id"`
}

// EnsureSecurityGroup implements sdn.SecurityGroups. It needs a GET of the group if its ID is
// known, otherwise a list of groups of that name and a GET or a POST; a POST for each hundred
// missing rules; and a DELETE for each superfluous rule. A new group in Neutron lets everything
// out: that rule is deleted, too.
func (b *Neutron) EnsureSecurityGroup(ctx context.Context, owner sdn.Owner, want sdn.SecurityGroup) (sdn.SecurityGroup, error) {
	rules, err := sdn.CanonicalRules(want.Rules)
	if err != nil {
		return sdn.SecurityGroup{}, err
	}
	w, err := b.findGroup(ctx, owner, want)
	isNew := errors.Is(err, sdn.ErrNotFound)
	if isNew {
		w, err = b.createGroup(ctx, owner, want)
	}
	if err != nil {
		return sdn.SecurityGroup{}, err
	}
	changed, err := b.setRules(ctx, w, rules)
	if err != nil {
		return sdn.SecurityGroup{}, fmt.Errorf("changing group %s: %w", w.ID, err)
	}
	g := groupOf(w)
	g.Owner, g.Rules, g.Mended = owner, rules, !isNew && (changed || w.mark().Owner != owner)
	return g, nil
}

// findGroup reads the group of an owner: the known one, otherwise the first one of its name. It
// requests no other groups.
func (b *Neutron) findGroup(ctx context.Context, owner sdn.Owner, want sdn.SecurityGroup) (wireGroup, error) {
	if want.ID != "" {
		w, err := b.readGroup(ctx, want.ID)
		if errors.Is(err, errUnmarked) && w.Name == want.Name {
			return w, b.markGroup(ctx, w.ID, owner)
		}
		if !errors.Is(err, sdn.ErrNotFound) && !errors.Is(err, errUnmarked) && (err != nil || w.mark().Owner == owner) {
			return w, err
		}
	}
	project, err := b.ProjectOr(ctx, want.ProjectID)
	if err != nil {
		return wireGroup{}, err
	}
	all, err := b.listGroups(ctx, want.Name)
	if err != nil {
		return wireGroup{}, err
	}
	i := slices.IndexFunc(all, func(w wireGroup) bool {
		return w.mark().Owner == owner && (project == "" || sdn.SameID(w.ProjectID, project))
	})
	if i < 0 {
		return wireGroup{}, sdn.ErrNotFound
	}
	return b.readGroup(ctx, all[i].ID)
}

func groupOf(w wireGroup) sdn.SecurityGroup {
	return sdn.SecurityGroup{ID: w.ID, Owner: w.mark().Owner, Name: w.Name, ProjectID: w.ProjectID}
}

func (b *Neutron) createGroup(ctx context.Context, owner sdn.Owner, want sdn.SecurityGroup) (wireGroup, error) {
	body, err := b.newBody(owner, want.Name, want.ProjectID)
	if err != nil {
		return wireGroup{}, err
	}
	return send[wireGroup](ctx, b.Client, groupKind, groupKind.request(http.MethodPost, "", body))
}

// markGroup marks a group again.
func (b *Neutron) markGroup(ctx context.Context, id string, owner sdn.Owner) error {
	body, err := b.newBody(owner, "", "")
	if err != nil {
		return err
	}
	return b.Do(ctx, groupKind.request(http.MethodPut, id, body))
}

// errUnmarked: somebody has taken the mark off a group, or it was never Kuryr's.
var errUnmarked = fmt.Errorf("its description has no mark of Kuryr: %w", sdn.ErrInvalid)

// readGroup reads a group of this cluster with its rules; also one without a mark, with
// errUnmarked.
func (b *Neutron) readGroup(ctx context.Context, id string) (wireGroup, error) {
	w, err := getOwn[wireGroup](ctx, b, groupKind, id)
	if w.ID != "" && w.mark().Cluster == "" {
		err = errUnmarked
	}
	return w, err
}

// rulesAtOnce is how many rules a request makes at most: Neutron writes each into its
// database and OVN's, and took up to a tenth of a second for one.
const rulesAtOnce = 100

// setRules makes the group hold exactly these rules, and reports whether it had to change. It
// deletes superfluous rules first, even if the rest fails; that may also free quota for the missing
// rules. But a superfluous rule that overlaps a missing one is deleted after that one exists, so
// that no allowed client is kept out meanwhile.
func (b *Neutron) setRules(ctx context.Context, w wireGroup, want []sdn.Rule) (changed bool, err error) {
	missing := slices.Clone(want)
	var surplus, serving []wireRule
	for _, one := range w.Rules {
		if i := slices.Index(missing, ruleOf(one)); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		} else {
			surplus = append(surplus, one)
		}
	}
	changed = len(missing)+len(surplus) > 0
	surplus = slices.DeleteFunc(surplus, func(one wireRule) bool {
		serves := slices.ContainsFunc(missing, func(m sdn.Rule) bool { return overlap(ruleOf(one), m) })
		if serves {
			serving = append(serving, one)
		}
		return serves
	})
	deleting := b.deleteRules(ctx, surplus)
	left, adding := b.addRules(ctx, w, missing)
	deleting = errors.Join(deleting, b.deleteRules(ctx, serving))
	if deleting != nil && errors.Is(adding, sdn.ErrQuota) { // where rules are left that are too many, a quota is not all that is wrong
		return changed, deleting
	} else if deleting != nil {
		return changed, errors.Join(deleting, adding)
	}
	if errors.Is(adding, sdn.ErrQuota) && len(serving) > 0 {
		_, adding = b.addRules(ctx, w, left)
	}
	return changed, adding
}

// overlap reports whether two rules let in somebody at the same port.
func overlap(a, b sdn.Rule) bool {
	p, err := netip.ParsePrefix(a.Remote)
	q, err2 := netip.ParsePrefix(b.Remote)
	return a.Protocol == b.Protocol && a.From <= b.To && b.From <= a.To && err == nil && err2 == nil && p.Overlaps(q)
}

// deleteRules deletes rules. If one cannot be deleted, it continues with the others. It stops if
// Neutron does not answer.
func (b *Neutron) deleteRules(ctx context.Context, rules []wireRule) error {
	var failed error
	for _, one := range rules {
		err := b.Do(ctx, ruleKind.request(http.MethodDelete, one.ID, nil))
		if err != nil && !errors.Is(err, sdn.ErrNotFound) {
			failed = errors.Join(failed, err)
		}
		if errors.Is(err, sdn.ErrUnavailable) {
			break
		}
	}
	return failed
}

// addRules makes rules, and returns those that it has not made.
func (b *Neutron) addRules(ctx context.Context, w wireGroup, rules []sdn.Rule) (left []sdn.Rule, err error) {
	for batch := range slices.Chunk(rules, rulesAtOnce) {
		all := make([]object, len(batch))
		for i, r := range batch {
			all[i] = newRule(w, r)
		}
		err := b.Do(ctx, session.Request{Method: http.MethodPost, Path: []string{"security-group-rules"}, Body: object{"security_group_rules": all}})
		if err != nil {
			return rules, err
		}
		rules = rules[len(batch):]
	}
	return nil, nil
}

func newRule(g wireGroup, r sdn.Rule) object {
	family := "IPv6"
	if p, err := netip.ParsePrefix(r.Remote); err == nil && p.Addr().Is4() {
		family = "IPv4"
	}
	return object{
		"security_group_id": g.ID, "project_id": g.ProjectID, "direction": "ingress", "ethertype": family,
		"protocol": strings.ToLower(r.Protocol), "port_range_min": r.From, "port_range_max": r.To, "remote_ip_prefix": r.Remote,
	}
}

// ruleOf is a rule in the seam's words; the zero Rule if these have none for it. All
// ports are none to Neutron, and some of its versions write everywhere so, too.
func ruleOf(w wireRule) sdn.Rule {
	if w.Direction != "ingress" || w.RemoteGroup != nil || w.RemoteAddress != nil {
		return sdn.Rule{}
	}
	r := sdn.Rule{Protocol: strings.ToUpper(w.Protocol), From: 1, To: 65535, Remote: w.RemotePrefix}
	if w.PortMin != nil && w.PortMax != nil {
		r.From, r.To = *w.PortMin, *w.PortMax
	}
	if r.Remote == "" {
		r.Remote = map[string]string{"IPv4": "0.0.0.0/0", "IPv6": "::/0"}[w.EtherType]
	}
	canonical, err := sdn.CanonicalRules([]sdn.Rule{r})
	if err != nil {
		return sdn.Rule{}
	}
	return canonical[0]
}

// ListSecurityGroups implements sdn.SecurityGroups.
func (b *Neutron) ListSecurityGroups(ctx context.Context) ([]sdn.SecurityGroup, error) {
	all, err := b.listGroups(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make([]sdn.SecurityGroup, len(all))
	for i, w := range all {
		out[i] = groupOf(w)
	}
	return out, nil
}

// listGroups lists those of this cluster, of a name if it is not empty, by their IDs.
func (b *Neutron) listGroups(ctx context.Context, name string) ([]wireGroup, error) {
	match := url.Values{}
	if name != "" {
		match.Set("name", name)
	}
	return listOwn[wireGroup](ctx, b, groupKind, match, "id", "name", "description", "project_id")
}

// inUseRetry is when to look again at a group that a port has.
const inUseRetry = 5 * time.Second

// DeleteSecurityGroup implements sdn.SecurityGroups.
func (b *Neutron) DeleteSecurityGroup(ctx context.Context, id string) error {
	_, err := b.readGroup(ctx, id)
	if err == nil {
		err = b.Do(ctx, groupKind.request(http.MethodDelete, id, nil))
	}
	switch {
	case errors.Is(err, sdn.ErrNotFound):
		return nil
	case errors.Is(err, sdn.ErrConflict):
		return &sdn.PendingError{What: "the last port to release security group " + id, Retry: inUseRetry}
	}
	return err
}
