// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the controller's permissions into config/base/controller-roles.yaml")

// TestPermissionsOfManifests: the manifests give the controller what permissions.go lists, and no
// more.
func TestPermissionsOfManifests(t *testing.T) {
	const file = "../../config/base/controller-roles.yaml"
	name := metav1.ObjectMeta{Name: "kuryr-controller"}
	want := []byte("# Generated from internal/controller/permissions.go, which has the reasons, by `make generate`.\n")
	for _, role := range []any{
		rbacv1.ClusterRole{
			TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}, ObjectMeta: name,
			Rules: slices.Concat(permissionsForPods, permissionsForServices, permissionsForNetworks),
		},
		rbacv1.Role{
			TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"}, ObjectMeta: name,
			Rules: permissionsInOwnNamespace,
		},
	} {
		text, err := yaml.Marshal(role)
		if err != nil {
			t.Fatal(err)
		}
		want = append(append(want, "---\n"...), text...)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not what permissions.go says (-want +got): run 'make generate' and commit what it changes\n%s", file, diff)
	}
}
