// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// memory is what the process knows of one KuryrLoadBalancer beyond the object. Only the worker
// that has the object uses it, but for what memories.mu protects.
type memory struct {
	uid     types.UID
	asked   checkRequest // of others, since the last round; memories.mu protects it
	leaving bool         // its status says that it is being deleted
	away    time.Time    // since when the cloud has not answered; zero: it does

	knownCloud
	knownAddress
	group     groupMemory
	openSince time.Time // since when clients outside the source ranges may come in; zero: none may
	attempts  balancer.Attempts
	stages
}

// knownCloud is what is known of the load balancers in the cloud.
type knownCloud struct {
	trees            []sdn.LoadBalancer   // as they were read; nil: they are to be read
	nothingCreated   bool                 // no request has ever created anything for it
	created          map[string]time.Time // when this process created a load balancer; zero: it has read or deleted it since
	statusIncomplete bool                 // the cloud may have load balancers that the status does not name
	checkRequested   bool                 // the cloud is to be read although nothing has changed
}

// knownAddress is what is known of the floating IP in the cloud.
type knownAddress struct {
	placed     bool             // it was found to be right
	address    balancer.Address // as it was then
	addressFor addressKnown     // what it was found right for
	noAddress  bool             // it has none, whatever the status still says
}

// addressKnown are the inputs for which a floating IP was found right.
type addressKnown struct {
	port     string
	spec     v1.PublicIPSpec
	withheld bool
}

// forgetCloud has all be read that the cloud has for the object, whatever the status names.
func (m *memory) forgetCloud() {
	m.trees, m.statusIncomplete, m.placed, m.noAddress = nil, true, false, false
}

// recallAddress takes the floating IP from the status of an object that this process sees for the first
// time, if the status is complete. The inventory compares all floating IPs with the cloud by one list.
// A status without the network of the floating IP does not list the fields that have not changed, either.
func (m *memory) recallAddress(klb *v1.KuryrLoadBalancer) {
	has, lbs, wants := klb.Status.PublicIP, klb.Status.LoadBalancers, klb.Spec.PublicIP
	settled := balancer.IsReady(klb) && meta.IsStatusConditionFalse(klb.Status.Conditions, v1.ConditionProgressing)
	// Without one, the deletion of an internal Service must not wait until Neutron answers.
	m.noAddress = settled && wants == nil && has == nil
	if !settled || wants == nil || has == nil || has.NetworkID == "" || len(lbs) == 0 {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(klb.Status.NotChanged), func(d v1.UnchangedField) bool { return !balancer.OfPublicIP(d) })
	m.placed, m.address, m.addressFor = true, balancer.Address{Has: has, Kept: kept}, addressKnown{port: lbs[0].PortID, spec: *wants}
}

// memories is the memory of all KuryrLoadBalancers. Its methods are safe for concurrent use.
type memories struct {
	mu  sync.Mutex
	all map[ctrl.Request]*memory
}

// entry returns the memory of an object. The caller holds the lock.
func (b *memories) entry(req ctrl.Request) *memory {
	if b.all == nil {
		b.all = map[ctrl.Request]*memory{}
	}
	if b.all[req] == nil {
		b.all[req] = &memory{}
	}
	return b.all[req]
}

// checkRequest is what another part of the controller asks a worker to do.
type checkRequest struct {
	check            bool // read the cloud
	statusIncomplete bool // also look for load balancers that the status does not name
	retry            bool // forget earlier attempts: they prove nothing
}

// of returns the memory of an object, after it has taken over what others have asked for since.
func (b *memories) of(klb *v1.KuryrLoadBalancer) *memory {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.entry(kube.RequestOf(klb))
	asked := m.asked
	if m.asked = (checkRequest{}); m.uid != klb.UID {
		*m = memory{uid: klb.UID, knownCloud: knownCloud{created: map[string]time.Time{}}}
		m.recallAddress(klb)
	}
	if asked == (checkRequest{}) {
		return m
	}
	m.trees, m.checkRequested = nil, m.checkRequested || asked.check
	if asked.retry {
		m.attempts.Forgive()
	}
	if asked.statusIncomplete {
		m.forgetCloud()
	}
	return m
}

// ask has the next round of an object do what is asked, beside what was asked before.
func (b *memories) ask(req ctrl.Request, c checkRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.entry(req)
	m.asked = checkRequest{c.check || m.asked.check, c.statusIncomplete || m.asked.statusIncomplete, c.retry || m.asked.retry}
}

// lose drops the memory of the objects of lost requests.
func (b *memories) lose(lost func(ctrl.Request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.all, func(req ctrl.Request, _ *memory) bool { return lost(req) })
}

// forget reports whether the object was ever reconciled.
func (b *memories) forget(req ctrl.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.all[req]
	delete(b.all, req)
	return m != nil && m.uid != ""
}
