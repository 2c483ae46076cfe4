// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// slowCloud creates ports slowly, and records the requests.
type slowCloud struct {
	sdn.Ports
	call, port time.Duration            // a request takes call, and port for each port
	patience   time.Duration            // longer requests get no answer, but ports; 0: none
	fail       func(host string) error  // instead of ports; nil: none
	stuck      map[string]chan struct{} // subnets whose requests wait for the channel

	limit    int  // of ports; 0: none
	hidden   bool // it does not report the limit
	mu       sync.Mutex
	made     int
	gone     int
	lost     int            // created without an answer
	rooms    int            // requests for the room
	underWay map[string]int // requests by subnet, and under "" of all
	most     map[string]int // the most of these at once
	asked    []asked
}

type asked struct {
	host string
	n    int
	at   time.Time
}

func (c *slowCloud) CreatePorts(ctx context.Context, _ sdn.Owner, r sdn.PortRequest, n int) ([]sdn.Port, error) {
	c.enter(r, n)
	defer c.exit(r)
	c.mu.Lock()
	took, patience := c.call+time.Duration(n)*c.port, c.patience
	c.mu.Unlock()
	if patience > 0 && took > patience {
		time.Sleep(patience)
		c.change(func() { c.lost += n })
		return nil, fmt.Errorf("creating ports: %w: no answer in time", sdn.ErrUnavailable)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(took):
	}
	if gate := c.stuck[r.SubnetIDs[0]]; gate != nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-gate:
		}
	}
	if c.fail != nil {
		if err := c.fail(r.Host); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.limit > 0 && c.made-c.gone+n > c.limit {
		n, err = max(0, c.limit-c.made+c.gone), sdn.ErrProjectQuota
	}
	ports := make([]sdn.Port, n)
	for i := range ports {
		c.made++
		ports[i] = sdn.Port{ID: fmt.Sprint("port-", c.made), Host: r.Host}
	}
	return ports, err
}

func (c *slowCloud) Room(context.Context, string, []string) (sdn.Room, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rooms++
	if c.hidden {
		return sdn.Room{}, nil
	}
	if c.limit == 0 {
		return sdn.Room{Ports: &sdn.Usage{Used: c.made - c.gone, Limit: -1}}, nil
	}
	return sdn.Room{Ports: &sdn.Usage{Used: c.made - c.gone, Limit: c.limit}}, nil
}

// change changes the cloud as another user does.
func (c *slowCloud) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// counts returns how many ports were created, and the numbers of requests for ports and for the
// room.
func (c *slowCloud) counts() (made, requests, rooms int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made, len(c.asked), c.rooms
}

func (c *slowCloud) enter(r sdn.PortRequest, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, asked{r.Host, n, time.Now()})
	for _, id := range []string{"", r.SubnetIDs[0]} {
		c.underWay[id]++
		c.most[id] = max(c.most[id], c.underWay[id])
	}
}

func (c *slowCloud) exit(r sdn.PortRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range []string{"", r.SubnetIDs[0]} {
		c.underWay[id]--
	}
}

// crowd is a set of pools that plan as the real ones do, without objects.
type crowd struct {
	t     *testing.T
	cloud *slowCloud
	s     *Supply
	began time.Time

	mu    sync.Mutex
	pools map[pool.Ref]*member
}

type member struct {
	key     v1.PoolKey
	min     int
	waiting int
	free    int
	served  []time.Duration // when each pod was served
	timer   *time.Timer
}

func newCrowd(t *testing.T, cloud *slowCloud) *crowd {
	cloud.underWay, cloud.most = map[string]int{}, map[string]int{}
	w := &crowd{t: t, cloud: cloud, began: time.Now(), pools: map[pool.Ref]*member{}}
	o := options(cloud)
	o.Queue = w
	w.s = New(o)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		w.s.create(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return w
}

// options are those of a Supply on cloud, with the usual backoff.
func options(cloud *slowCloud) Options {
	return Options{
		Shards: kube.Alone{}, Ports: cloud, Capacity: cloud, Settings: settings.NewLive(settings.Settings{Pools: config.Pools{MaxCreates: 8, MaxCreatesPerSubnet: 4}}),
		Backoff: outcome.Backoff{Min: time.Second, Max: 10 * time.Second, Quota: 30 * time.Second, Rejected: time.Minute},
		Queue:   &kube.Queue[pool.Ref]{}, CheckPorts: kube.NewSignal(), Subnets: more{},
	}
}

// more is, by a subnet, others that the address may be of instead.
type more map[string][]string

func (m more) More(context.Context, []string) (map[string][]string, error) { return m, nil }

// Add plans a pool.
func (w *crowd) Add(r pool.Ref) { go w.plan(r) }

// on returns the pool of a node on a subnet.
func on(node, subnet string) (pool.Ref, v1.PoolKey) {
	return pool.Ref{Pool: node + "-" + subnet, Node: node}, v1.PoolKey{NodeName: node, SubnetIDs: []string{subnet}}
}

// change changes a pool and plans it.
func (w *crowd) change(node, subnet string, f func(*member)) {
	r, key := on(node, subnet)
	w.mu.Lock()
	if w.pools[r] == nil {
		w.pools[r] = &member{key: key}
	}
	f(w.pools[r])
	w.mu.Unlock()
	w.plan(r)
}

func (w *crowd) plan(r pool.Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.pools[r]
	known := w.s.Snapshot(r, &m.key, nil)
	for id := range known.Unrecorded {
		w.s.Recorded(r, id)
		if m.waiting > 0 {
			m.waiting--
			m.served = append(m.served, time.Since(w.began))
		} else {
			m.free++
		}
	}
	room, hold := known.Room, known.Hold
	p := Planned{Key: &m.key, Free: m.free, Lacks: max(0, m.waiting-known.InFlight), Batch: 10, Asked: known.Asked}
	if room.Full != nil && p.Lacks > 0 && hold.Before(room.Until) {
		hold = room.Until
	}
	switch {
	case time.Now().Before(hold):
		w.later(r, hold)
	case room.Scarce == nil && room.Full == nil:
		p.Want = pool.Demand{Waiting: p.Lacks, Spare: max(0, m.min-m.free-max(0, known.InFlight-m.waiting))}
	default:
		p.Want.Waiting = p.Lacks
		if m.free < m.min {
			w.later(r, room.Until)
			w.later(r, room.Again)
		}
	}
	_ = w.s.RecordPlan(r, p)
}

// later plans a pool again; a new time replaces an earlier one. w.mu is held.
func (w *crowd) later(r pool.Ref, at time.Time) {
	m := w.pools[r]
	if at.IsZero() {
		return
	}
	if m.timer != nil {
		m.timer.Stop()
	}
	m.timer = time.AfterFunc(time.Until(at), func() { w.plan(r) })
}

func (w *crowd) of(node, subnet string) member {
	r, _ := on(node, subnet)
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.pools[r]
}

// pass lets time pass, until everything that is due has ended.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestFirstPodOfAColdPool: the first pod waits for one port; the spare ports come after it.
func TestFirstPodOfAColdPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, &slowCloud{call: 100 * time.Millisecond, port: 350 * time.Millisecond})
		w.change("n", "s", func(m *member) { m.waiting, m.min = 1, 10 })
		pass(time.Minute)
		got := w.of("n", "s")
		if want := []time.Duration{450 * time.Millisecond}; !slices.Equal(got.served, want) {
			t.Errorf("the pod was served after %v, want %v", got.served, want)
		}
		if got.free != 10 || w.cloud.made != 11 {
			t.Errorf("%d free ports of %d made, want 10 of 11", got.free, w.cloud.made)
		}
		for _, a := range w.cloud.asked {
			if took := w.cloud.call + time.Duration(a.n)*w.cloud.port; took > 4*time.Second {
				t.Errorf("a request for %d ports keeps the SDN for %s", a.n, took)
			}
		}
	})
}

// TestPodsComeBeforeRefills: pods of any pool come before refills, and find a place at once.
func TestPodsComeBeforeRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, &slowCloud{call: time.Second})
		for i := range 20 {
			w.change(fmt.Sprint("idle-", i), "s", func(m *member) { m.min = 10 })
		}
		pass(500 * time.Millisecond)
		if n := w.cloud.most["s"]; n != 3 {
			t.Errorf("refills have %d places of 4, want 3", n)
		}
		w.change("n", "s", func(m *member) { m.waiting = 4 })
		pass(time.Minute)
		for i, at := range w.of("n", "s").served {
			if at > 3*time.Second {
				t.Errorf("pod %d waited for %s among refills", i, at)
			}
		}
		if n := w.cloud.made; n != 204 {
			t.Errorf("%d ports made, want 204", n)
		}
	})
}

// TestWishIsWithdrawn: no port is requested for a pod that is deleted before its turn.
func TestWishIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, &slowCloud{call: time.Second})
		w.change("busy", "s", func(m *member) { m.waiting = 4 })
		synctest.Wait()
		w.change("n", "s", func(m *member) { m.waiting = 3 })
		synctest.Wait()
		w.change("n", "s", func(m *member) { m.waiting = 0 })
		pass(time.Minute)
		for _, a := range w.cloud.asked {
			if a.host == "n" {
				t.Errorf("asked for %d ports for pods that had gone", a.n)
			}
		}
	})
}

// TestBurst: 500 pods on 10 nodes get their ports with the most requests that may be in flight.
// No port too many is created, and no node is served long after the others.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, &slowCloud{call: 100 * time.Millisecond, port: 350 * time.Millisecond})
		for i := range 10 {
			w.change(fmt.Sprint("n-", i), fmt.Sprint("s-", i%3), func(m *member) { m.waiting = 50 })
		}
		pass(10 * time.Minute)
		if w.cloud.made != 500 || w.cloud.most[""] != 8 {
			t.Errorf("%d ports made, %d requests at once; want 500 and 8", w.cloud.made, w.cloud.most[""])
		}
		for i := range 3 {
			if n := w.cloud.most[fmt.Sprint("s-", i)]; n > 4 {
				t.Errorf("%d requests at once on one subnet, want 4 at most", n)
			}
		}
		// In full batches it would be 50. If ports cost as much in bulk as alone, few are
		// requested at once, so that the first pods do not wait.
		if n := len(w.cloud.asked); n > 250 {
			t.Errorf("%d requests for 500 ports, want 250 at most", n)
		}
		bare := 500 * (w.cloud.call + 10*w.cloud.port) / 10 / 8 // in full batches
		for i := range 10 {
			got := w.of(fmt.Sprint("n-", i), fmt.Sprint("s-", i%3)).served
			if len(got) != 50 || got[49] > bare*3/2 || got[0] > bare/4 {
				t.Errorf("node %d: %d pods served after %v; want 50 within %s", i, len(got), got, bare*3/2)
			}
		}
	})
}

// TestCheapBulkIsUsed: where a request is expensive and its ports are not, few requests are
// sent.
func TestCheapBulkIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, &slowCloud{call: time.Second, port: time.Millisecond})
		w.change("n", "s", func(m *member) { m.waiting, m.min = 100, 20 })
		pass(10 * time.Minute)
		if got := w.of("n", "s"); len(got.served) != 100 || got.free != 20 {
			t.Errorf("%d pods served, %d ports free; want 100, 20", len(got.served), got.free)
		}
		if n := len(w.cloud.asked); n > 30 {
			t.Errorf("%d requests for 120 ports in batches of 10", n)
		}
	})
}

// TestStuckRequests: they delay no pod on another subnet.
func TestStuckRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		w := newCrowd(t, &slowCloud{call: time.Second, stuck: map[string]chan struct{}{"stuck": gate}})
		for i := range 10 {
			w.change(fmt.Sprint("n-", i), "stuck", func(m *member) { m.waiting = 10 })
		}
		w.change("n", "s", func(m *member) { m.waiting = 3 })
		pass(10 * time.Second)
		if got := w.of("n", "s").served; len(got) != 3 {
			t.Errorf("%d of 3 pods served while another subnet is stuck", len(got))
		}
		close(gate)
		pass(10 * time.Minute)
		if w.cloud.made != 103 {
			t.Errorf("%d ports made, want 103", w.cloud.made)
		}
	})
}

// TestRefusalsAreNotHot: a refused pool retries after its backoff, and delays no other pool.
func TestRefusalsAreNotHot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &slowCloud{call: 10 * time.Millisecond, fail: func(host string) error {
			if host == "bad" {
				return sdn.ErrUnbound
			}
			return nil
		}}
		w := newCrowd(t, cloud)
		w.change("bad", "s", func(m *member) { m.waiting, m.min = 50, 10 })
		w.change("n", "s", func(m *member) { m.waiting = 3 })
		pass(10 * time.Minute)
		if got := w.of("n", "s").served; len(got) != 3 {
			t.Errorf("%d of 3 pods served beside a pool that fails", len(got))
		}
		if n := len(cloud.asked); n > 4*65+3 { // each backoff up to four at once, 10 s at the longest
			t.Errorf("%d requests in ten minutes", n)
		}
	})
}

// TestNoAnswerInTime: a cloud that has become slow gets requests for fewer ports. It does not
// get the same request again and again for ports that it creates without an answer.
func TestNoAnswerInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &slowCloud{call: 500 * time.Millisecond, port: 10 * time.Millisecond, patience: time.Minute}
		w := newCrowd(t, cloud)
		w.change("n", "s", func(m *member) { m.waiting = 100 })
		pass(time.Minute)
		cloud.change(func() { cloud.call, cloud.port = 2*time.Second, 15*time.Second })
		w.change("n", "s", func(m *member) { m.waiting = 60 })
		pass(20 * time.Minute)
		if got := w.of("n", "s").served; len(got) != 160 {
			t.Errorf("%d of 160 pods served", len(got))
		}
		if cloud.lost > 60 { // those in flight when it became slow, and half of that
			t.Errorf("%d ports made that nobody was told of", cloud.lost)
		}
	})
}
