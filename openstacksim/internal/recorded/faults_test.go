// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package recorded_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// simFaults makes the faults of bedFaults in the simulator.
type simFaults struct{ *openstacksim.Cloud }

func (f simFaults) do(_ context.Context, words []string) error {
	switch {
	case words[0] == "lose-member" && len(words) == 3:
		return f.LoseMember(words[2])
	case words[0] == "set-status" && len(words) == 3:
		return f.SetProvisioning("loadbalancers", words[1], words[2])
	}
	return fmt.Errorf("no such fault: %q", words)
}

// bedFaults makes the faults that a killed Octavia leaves in the test bed's cloud. It changes
// OVN's database (OVN_NB_DB, as `bed env` sets it) and Octavia's.
type bedFaults struct{ bed string }

func (b *bedFaults) do(ctx context.Context, words []string) error {
	switch {
	case words[0] == "lose-member" && len(words) == 3:
		return b.loseMember(ctx, words[1], words[2])
	case words[0] == "set-status" && len(words) == 3:
		return b.setStatus(ctx, words[1], words[2])
	}
	return fmt.Errorf("no such fault: %q", words)
}

// loseMember removes a member from OVN's load balancer: from the list in external_ids, which the
// provider uses, and from OVN's own backends.
func (b *bedFaults) loseMember(ctx context.Context, pool, member string) error {
	rows, err := run(ctx, "ovn-nbctl", "--bare", "--columns=_uuid,external_ids", "list", "load_balancer")
	if err != nil {
		return err
	}
	for _, text := range strings.Split(rows, "\n\n") {
		row, ids, _ := strings.Cut(strings.TrimSpace(text), "\n")
		_, list, found := strings.Cut(ids, "pool_"+pool+"=")
		if !found {
			continue
		}
		all := strings.Split(strings.Fields(list + " ")[0], ",")
		lost := slices.IndexFunc(all, func(m string) bool { return strings.HasPrefix(m, "member_"+member+"_") })
		if lost < 0 {
			break
		}
		address := strings.Split(all[lost], "_")[2]
		rest := strings.Join(slices.Delete(all, lost, lost+1), ",")
		if _, err := run(ctx, "ovn-nbctl", "set", "load_balancer", row, fmt.Sprintf(`external_ids:pool_%s="%s"`, pool, rest)); err != nil {
			return err
		}
		return b.loseBackend(ctx, row, address)
	}
	return fmt.Errorf("OVN has no member %s of pool %s", member, pool)
}

func (b *bedFaults) loseBackend(ctx context.Context, row, address string) error {
	vips, err := run(ctx, "ovn-nbctl", "--bare", "--columns=vips", "list", "load_balancer", row)
	if err != nil {
		return err
	}
	for _, vip := range strings.Fields(vips) {
		front, backs, _ := strings.Cut(vip, "=")
		rest := slices.DeleteFunc(strings.Split(backs, ","), func(back string) bool { return back == address })
		change := []string{"set", "load_balancer", row, fmt.Sprintf(`vips:"%s"="%s"`, front, strings.Join(rest, ","))}
		if len(rest) == 0 { // as the provider does
			change = []string{"remove", "load_balancer", row, "vips", `"` + front + `"`}
		}
		if _, err := run(ctx, "ovn-nbctl", change...); err != nil {
			return err
		}
	}
	return nil
}

func (b *bedFaults) setStatus(ctx context.Context, balancer, status string) error {
	_, err := run(ctx, "mariadb", "--no-defaults", "--socket="+filepath.Join(b.bed, "run/mysql.sock"), "-u", "root", "octavia", "-e",
		fmt.Sprintf("UPDATE load_balancer SET provisioning_status='%s' WHERE id='%s'", status, balancer))
	return err
}

func run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
