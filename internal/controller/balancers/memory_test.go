// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// TestForgets: only the end of an object that was reconciled makes room for others. A check may be
// requested of one that is long gone.
func TestForgets(t *testing.T) {
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
	req := kube.RequestOf(klb)
	var all memories
	all.of(klb)
	if !all.forget(req) {
		t.Error("an object that was reconciled is not known")
	}
	all.ask(req, checkRequest{check: true})
	if all.forget(req) {
		t.Error("an object is known because a check was requested")
	}
}
