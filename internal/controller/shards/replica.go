// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package shards has this controller process own its part of the keys. plan/shard decides; a Replica tells it what
// the API server shows, and does what it says: renewals of a Lease, writes of the table, and the opening
// and closing of the Gate that all other parts of the controller ask before they begin work.
package shards

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
)

var ownedBuckets = kube.Gauge("kuryr_owned_buckets", "Of the 128 buckets of keys (nodes, namespaces, tasks) those that this replica works on.")

// Options say what a Replica is.
type Options struct {
	Cluster   *rest.Config
	Namespace string // of the Leases
	// Identity names the process. Two processes with one identity never live at once: that of a pod starts
	// after the last one in that pod has ended.
	Identity string
	Active   int // how many replicas own keys; 0: all
}

// Replica is the kube.Shards of a process that may be one of several. It is a runnable of the manager. It joins when
// the caches are filled, and gives all that it owns away when it is stopped; reconcilers must run meanwhile.
type Replica struct {
	*Gate
	leases  *leases
	barrier barrier

	view    *shard.View // used by the goroutine of Start only
	events  chan func() // what has happened, for that goroutine
	told    chan struct{}
	leader  atomic.Pointer[string]
	holding atomic.Bool
	others  atomic.Bool // there was another replica, or a leader of an earlier version, since New
	log     logr.Logger
}

// New returns a Replica. It asks the API server whether there are others: so it must be called before the caches
// begin to fill.
func New(ctx context.Context, o Options) (*Replica, error) {
	leases, err := newLeases(o.Cluster, o.Namespace, o.Identity)
	if err != nil {
		return nil, err
	}
	r := &Replica{Gate: NewGate(sinceBoot), leases: leases, view: shard.New(o.Active), events: make(chan func()), told: make(chan struct{})}
	close(r.told)
	ctx, cancel := context.WithTimeout(ctx, shard.Patience)
	defer cancel()
	all, _, err := leases.all(ctx)
	if err != nil {
		return nil, err
	}
	r.noteOthers(all)
	return r, nil
}

// sinceBoot is a clock that goes on while the machine is suspended.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux since 2.6.39 has it
	}
	return time.Duration(t.Nano())
}

// Setup adds the Replica to a manager, whose caches it waits for.
func (r *Replica) Setup(mgr ctrl.Manager) error {
	r.barrier.client, r.barrier.live, r.barrier.name = mgr.GetClient(), mgr.GetAPIReader(), r.leases.identity
	return mgr.Add(r)
}

// Cached implements kube.Shards.
func (r *Replica) Cached(kind client.ObjectList) { r.barrier.add(kind) }

// NeedLeaderElection is false: a Replica takes part in every process.
func (*Replica) NeedLeaderElection() bool { return false }

// Leader returns the name of the replica that owns bucket 0, and whether it is known.
func (r *Replica) Leader() (name string, known bool) {
	if p := r.leader.Load(); p != nil {
		name = *p
	}
	return name, name != ""
}

// Holding reports whether this process owns all keys.
func (r *Replica) Holding() bool { return r.holding.Load() }

// SetActive changes how many replicas own keys, while this one owns bucket 0.
func (r *Replica) SetActive(ctx context.Context, n int) {
	r.happened(ctx, func() { r.view.SetActive(n) })
}

// tick is how often a Replica looks at its clock.
const tick = 100 * time.Millisecond

// Start takes part until ctx ends and all is given away. It returns an error if the process must end
// because others may own its keys.
func (r *Replica) Start(ctx context.Context) error {
	r.log = ctrl.LoggerFrom(ctx).WithName("shards").WithValues("replica", r.leases.identity)
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := r.join(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	go r.watch(live)
	ticker, ending := time.NewTicker(tick), ctx.Done()
	defer ticker.Stop()
	for {
		s := r.view.Next(r.Busy(), sinceBoot())
		if s.End != "" {
			return r.end(s.End)
		}
		r.do(live, s)
		r.Renew(r.view.Deadline(), r.view.Owners())
		r.publish()
		select {
		case <-ending:
			ending = nil
			r.log.Info("giving all keys away")
			r.view.Leave(sinceBoot())
		case f := <-r.events:
			f()
		case <-ticker.C:
		}
	}
}

func (r *Replica) publish() {
	r.leader.Store(new(r.view.Leader()))
	r.holding.Store(r.view.Holding())
	ownedBuckets.Set(r.Share() * shard.Buckets)
}

func (r *Replica) end(why string) error {
	r.Renew(0, 1) // no request begins
	r.drop(shard.All())
	r.publish()
	if r.view.Left() {
		r.log.Info("gave all keys away")
		return nil
	}
	return fmt.Errorf("this controller must end: %s", why)
}

// join creates the own Lease, unless ctx ends before. It fails only if there is no such namespace.
func (r *Replica) join(ctx context.Context) error {
	for reported := ""; ; {
		sent := sinceBoot()
		request, cancel := context.WithTimeout(ctx, shard.Own)
		made, former, err := r.leases.join(request)
		cancel()
		if err == nil {
			r.view.Joined(string(made.UID), string(former), sent)
			return nil
		}
		if apierrors.IsNotFound(err) {
			return err
		}
		if err.Error() != reported && ctx.Err() == nil {
			reported = err.Error()
			r.log.Info("cannot join the controllers; trying again", "error", reported)
		}
		if !kube.Pause(ctx, time.Second) {
			return nil
		}
	}
}

// watch tells the View what the API server shows, until ctx ends.
func (r *Replica) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.leases.follow(ctx, func(all map[string]*coordinationv1.Lease, listed bool) {
			members, table := stateOf(all)
			r.noteOthers(all)
			r.happened(ctx, func() { r.view.Saw(members, table, listed, sinceBoot()) })
		})
		if ctx.Err() == nil {
			r.log.V(1).Info("listing the Leases of the controllers anew", "because", err.Error())
		}
		kube.Pause(ctx, 200*time.Millisecond)
	}
}

func (r *Replica) noteOthers(all map[string]*coordinationv1.Lease) {
	for name, l := range all {
		if t := tableOf(l); name == TableName && t.Held || name != TableName && name != nameOf(r.leases.identity) {
			r.others.Store(true)
		}
	}
}

// happened has the goroutine of Start run f, unless ctx ends before.
func (r *Replica) happened(ctx context.Context, f func()) {
	select {
	case r.events <- f:
	case <-ctx.Done():
	}
}

// tell runs f after all that was told before. It does not wait.
func (r *Replica) tell(f func()) {
	before, done := r.told, make(chan struct{})
	r.told = done
	go func() {
		<-before
		f()
		close(done)
	}()
}

// do begins the steps.
func (r *Replica) do(ctx context.Context, s shard.Steps) {
	r.Close(s.Close)
	if s.Lose.Len() > 0 {
		r.log.Info("losing keys", "buckets", s.Lose.Len())
		r.drop(s.Lose)
		r.tell(func() {
			r.tellLost(s.Lose)
			r.happened(ctx, func() { r.view.Lost(s.Lose) })
		})
	}
	uid := types.UID(r.view.UID())
	if s.Renew {
		var version string
		go r.request(ctx, func(ctx context.Context) (err error) {
			version, err = r.leases.renew(ctx, uid, s.Leaving)
			return err
		}, func(err error) {
			if err == nil {
				r.view.Renewed(version, sinceBoot(), s.Leaving)
			} else {
				r.view.NotRenewed(apierrors.IsNotFound(err) || apierrors.IsConflict(err)) // a conflict: its UID is another
			}
		})
	}
	for _, m := range s.Break {
		r.log.Info("another replica has not renewed its Lease: breaking it", "other", m.Name)
		go r.request(ctx, func(ctx context.Context) error {
			return r.leases.remove(ctx, nameOf(m.Name), types.UID(m.UID), m.Version)
		}, func(err error) { r.view.Broke(m.UID, err == nil, sinceBoot()) })
	}
	if s.Open.Len() > 0 {
		go r.begin(ctx, s.Open)
	}
	if s.Write != nil {
		holder := r.view.NameOf(s.Write.Owner(0))
		var version uint64
		go r.request(ctx, func(ctx context.Context) (err error) {
			version, err = r.leases.write(ctx, s.Write, holder)
			return err
		}, func(err error) {
			if err == nil {
				r.view.Wrote(version, sinceBoot())
				return
			}
			r.view.NotWritten(apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err))
		})
	}
	if s.Remove {
		go r.request(ctx, func(ctx context.Context) error {
			return r.leases.remove(ctx, nameOf(r.leases.identity), uid, "")
		}, func(err error) { r.view.Removed(client.IgnoreNotFound(err) == nil) })
	}
}

// begin opens buckets when the caches show what earlier owners wrote.
func (r *Replica) begin(ctx context.Context, buckets shard.Set) {
	for r.others.Load() { // otherwise nobody has written since before the caches began to fill
		err := r.barrier.pass(ctx, keysIn(buckets))
		if err == nil {
			break
		}
		r.log.Info("cannot make sure that the caches show what others wrote; trying again", "error", err.Error())
		if !kube.Pause(ctx, time.Second) {
			return
		}
	}
	r.happened(ctx, func() {
		own, crashed := r.view.Passed(buckets)
		if own.Len() == 0 {
			return
		}
		r.log.Info("gained keys", "buckets", own.Len(), "crashed", crashed.Len())
		r.admit(own)
		r.Renew(r.view.Deadline(), r.view.Owners())
		r.tell(func() {
			for set, after := range map[shard.Set]bool{own.Minus(crashed): false, crashed: true} {
				if set.Len() > 0 {
					r.tellGained(ctx, set, after)
				}
			}
		})
	})
}

// request sends a request within its time, and tells the View the result.
func (r *Replica) request(ctx context.Context, send func(context.Context) error, answer func(error)) {
	bounded, cancel := context.WithTimeout(ctx, shard.Try)
	err := send(bounded)
	cancel()
	r.happened(ctx, func() { answer(err) })
}
