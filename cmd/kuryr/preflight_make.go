// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/kuryr-go/kuryr/internal/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// check checks the flags that belong together.
func (f *preflightFlags) check() error {
	switch {
	case !f.makes && (f.dryRun || f.router != ""):
		return errors.New("--dry-run and --router have an effect with --make only: add --make, or remove them")
	case f.makes && f.output != "text":
		return errors.New("--make prints text: remove --output, and run the command again without --make for json")
	}
	_, err := f.ranges()
	return err
}

// ranges returns --pods-range.
func (f *preflightFlags) ranges() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range f.podRanges {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Masked() != p {
			return nil, fmt.Errorf("--pods-range is %q: write a prefix, as in 10.128.0.0/16", text)
		}
		for _, o := range out {
			if o.Addr().Is4() == p.Addr().Is4() {
				return nil, fmt.Errorf("--pods-range has %s and %s of one address family: write one of each", o, p)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// makeFirst makes what a first start needs. It prints each thing, and the lines for the
// configuration.
func makeFirst(ctx context.Context, w io.Writer, f preflightFlags, m preflight.Maker) (missing int, err error) {
	if m.PodRanges, err = f.ranges(); err != nil {
		return 0, err
	}
	m.RouterID, m.DryRun = f.router, f.dryRun
	var said strings.Builder
	m.Tell = func(s sdn.Setup, id string, made bool) { said.WriteString(toldOf(s, id, made, f.dryRun)) }
	missing, err = m.Make(ctx)
	said.WriteString("\n")
	if err == nil && missing == 0 {
		pods, services := m.Config.Pods, m.Config.Services
		fmt.Fprintf(&said, "Write into the configuration, if it is not there yet:\n\npods:\n  subnetIDs: [%s]\n  securityGroupIDs: [%s]\nservices:\n  subnetIDs: [%s]\n\n",
			strings.Join(pods.SubnetIDs, ", "), strings.Join(pods.SecurityGroupIDs, ", "), strings.Join(services.SubnetIDs, ", "))
	}
	if _, printErr := io.WriteString(w, said.String()); printErr != nil && err == nil {
		err = fmt.Errorf("printing what was made: %w", printErr)
	}
	return missing, err
}

// toldOf is the line about a thing.
func toldOf(s sdn.Setup, id string, made, dryRun bool) string {
	verb := "exists"
	switch {
	case made && dryRun:
		verb = "would be made"
	case made:
		verb = "made"
	}
	what := strings.TrimSpace(string(s.Kind) + " " + s.Name)
	if s.Prefix.IsValid() {
		what += " " + s.Prefix.String()
	}
	if s.Kind == sdn.SetupRouterInterface {
		id = cmp.Or(s.RouterID, id)
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s", what, verb, id)) + "\n"
}
