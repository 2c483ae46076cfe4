// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"reflect"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/controller/balancers"
	"github.com/kuryr-go/kuryr/internal/controller/clusterips"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/membergroups"
	"github.com/kuryr-go/kuryr/internal/controller/networks"
	"github.com/kuryr-go/kuryr/internal/controller/preflight"
	"github.com/kuryr-go/kuryr/internal/controller/services"
)

// TestWhatIsRememberedOfLostKeys: each part of a reconciler that may remember something of a key is
// dropped when the key is lost, or may stay. A new one fails this test until it is listed here.
func TestWhatIsRememberedOfLostKeys(t *testing.T) {
	const lose, list = "dropped by lose", "the last list of a project: no later question gets it"
	want := map[string]string{
		"balancers.Reconciler.memories.all":         lose,
		"balancers.Reconciler.objects.last":         lose,
		"balancers.Reconciler.wait.busy":            lose,
		"balancers.Reconciler.quotas.full":          lose,
		"balancers.Reconciler.turns":                lose,
		"balancers.Reconciler.checks.left":          "requests of others are dropped",
		"balancers.Reconciler.lists.last":           list,
		"balancers.Reconciler.addresses.last":       list,
		"balancers.Reconciler.lists.locks.held":     "held during requests",
		"balancers.Reconciler.addresses.locks.held": "held during requests",
		"clusterips.Reconciler.young":               lose,
		"clusterips.Reconciler.listed.all":          lose,
		"services.Reconciler.objects.last":          lose,
		"services.Reconciler.ranges.all":            "prefixes of subnets never change",
		"networks.Planner.objects.last":             lose,
		"networks.Planner.portUses.all":             lose,
		"networks.Planner.written":                  lose,
		"networks.Planner.made":                     lose,
		"networks.Planner.told":                     lose,
		"networks.Planner.subnets.all":              "prefixes of subnets never change",
		"networks.Planner.families.all":             "IP families of subnet pools never change",
		"networks.Applier.memories":                 lose,
		"networks.Applier.objects.last":             lose,
		"networks.Applier.lists.all":                lose,
		"networks.Applier.routers.all":              lose,
		"kube.Networks.vouched":                     "what was seen in the cloud; dropped by lose of the Applier once nothing is owned",
		"kube.Networks.followers":                   "functions",
		"membergroups.Groups.settings.followers":    "functions",
	}
	for _, part := range []any{
		balancers.Reconciler{}, clusterips.Reconciler{}, services.Reconciler{}, networks.Planner{}, networks.Applier{},
		membergroups.Groups{}, preflight.Loop{}, policyNotices{}, kube.Networks{},
	} {
		for _, path := range remembering(reflect.TypeOf(part)) {
			if _, listed := want[path]; !listed {
				t.Errorf("%s may remember something of a key: have it dropped when the key is lost, and list it here", path)
			}
			delete(want, path)
		}
	}
	for path := range want {
		t.Errorf("%s is listed, and is not there", path)
	}
}

// IsMap reports whether a type is a map: Go's own, of package sync, or of xsync.
func IsMap(is reflect.Type) bool {
	return is.Kind() == reflect.Map || is.PkgPath() == "sync" && is.Name() == "Map" || strings.HasSuffix(is.PkgPath(), "/xsync/v4")
}

// remembering returns the maps and slices of a struct of this module, and of the structs
// that it consists of. What others own, by an interface or Options, is theirs.
func remembering(is reflect.Type) (paths []string) {
	const module = "github.com/kuryr-go/kuryr/internal/"
	var walk func(is reflect.Type, path string)
	walk = func(is reflect.Type, path string) {
		if is.Kind() == reflect.Pointer {
			is = is.Elem()
		}
		switch {
		case IsMap(is), is.Kind() == reflect.Slice:
			paths = append(paths, path)
		case is.Kind() == reflect.Struct && strings.HasPrefix(is.PkgPath(), module):
			for f := range is.Fields() {
				switch name := f.Name; {
				case strings.HasSuffix(name, "Options"): // the wiring
				case f.Anonymous:
					walk(f.Type, path)
				default:
					walk(f.Type, path+"."+name)
				}
			}
		}
	}
	walk(is, is.String())
	return paths
}
