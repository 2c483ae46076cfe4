// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/test/cluster"
)

// A port has the groups of the configuration, and they are enforced: without an
// ingress rule nobody reaches the pod, and with one everybody does.
func TestSecurityGroupsAreEnforced(t *testing.T) {
	f := onBed(t)
	client := f.pods(t, "client")[0]
	group := f.closedGroup(t)
	f.configure(t, func(pods map[string]any) { pods["securityGroupIDs"] = []string{group} })

	var server *corev1.Pod
	eventually(t, func() error { // until the controller has seen the change
		pod, err := f.Pod(t.Context(), f.namespace, "server", "n1")
		if err != nil {
			return err
		}
		server = f.running(t, pod.Name)
		port, err := f.portOf(t, server)
		if err != nil {
			return err
		}
		if len(port.SecurityGroups) == 1 && port.SecurityGroups[0] == group {
			return nil
		}
		f.delete(t, server)
		return fmt.Errorf("the port has groups %v, want %s", port.SecurityGroups, group)
	})
	ask := []string{"curl", "-sS", "-m2", "http://" + server.Status.PodIP + ":8080/hostname"}
	for range 3 {
		if got, err := f.Exec(t.Context(), f.namespace, client.Name, ask...); err == nil {
			t.Fatalf("a port without an ingress rule answers %q", got)
		}
	}
	f.opens(t, group)
	eventually(t, func() error {
		_, err := f.Exec(t.Context(), f.namespace, client.Name, ask...)
		return err
	})
	f.delete(t, server)
}

// opens lets all reach the HTTP servers of a group's pods.
func (f *fixture) opens(t testing.TB, group string) {
	t.Helper()
	if _, err := rules.Create(t.Context(), f.Neutron, rules.CreateOpts{
		SecGroupID: group, Direction: rules.DirIngress, EtherType: rules.EtherType4,
		Protocol: rules.ProtocolTCP, PortRangeMin: 8080, PortRangeMax: 8080,
	}).Extract(); err != nil {
		t.Fatal(err)
	}
}

// closedGroup makes a security group without an ingress rule.
func (f *fixture) closedGroup(t testing.TB) string {
	t.Helper()
	return f.namedGroup(t, f.namespace)
}

func (f *fixture) namedGroup(t testing.TB, name string) string {
	t.Helper()
	group := must(groups.Create(t.Context(), f.Neutron, groups.CreateOpts{Name: name, ProjectID: os.Getenv("PROJECT")}).Extract())(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		// The last port that has it goes a moment after its pod.
		if err := cluster.Until(ctx, func() error { return groups.Delete(ctx, f.Neutron, group.ID).ExtractErr() }); err != nil {
			t.Errorf("deleting security group %s: %v", group.ID, err)
		}
	})
	return group.ID
}

// portOf returns the Neutron port of a pod.
func (f *fixture) portOf(t testing.TB, pod *corev1.Pod) (*neutronPort, error) {
	kp, err := f.KuryrPortOf(t.Context(), pod)
	if err != nil {
		return nil, err
	}
	port, err := f.Port(t.Context(), kp.Name)
	return &port, err
}

var errNotYet = errors.New("not yet")
