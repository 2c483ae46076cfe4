// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// unbroken notes the controller's process, and checks at the end of the test that
// it is still the same, but for those that the test has killed: recovering takes no restart.
func (f *fixture) unbroken(t testing.TB) {
	t.Helper()
	restarts := func(pod *corev1.Pod) int32 { return pod.Status.ContainerStatuses[0].RestartCount }
	before := f.controller(t)
	t.Cleanup(func() {
		var after corev1.Pod
		if err := f.Client.Get(context.Background(), client.ObjectKeyFromObject(before), &after); err != nil {
			t.Error(err)
		} else if got, want := restarts(&after), restarts(before)+f.killed; got != want {
			t.Errorf("the controller has restarted %d times, want %d", got, want)
		}
	})
}

// condition waits until the pool of a node has a condition whose message holds want.
func (f *fixture) condition(t testing.TB, node, condition string, status metav1.ConditionStatus, want string) {
	t.Helper()
	eventually(t, func() error {
		var pools v1.KuryrPortPoolList
		if err := f.Client.List(t.Context(), &pools, client.MatchingFields{"spec.key.nodeName": node}); err != nil {
			return err
		}
		var seen []metav1.Condition
		for _, pool := range pools.Items {
			seen = append(seen, pool.Status.Conditions...)
			if c := meta.FindStatusCondition(pool.Status.Conditions, condition); c != nil && c.Status == status && strings.Contains(c.Message, want) {
				t.Logf("pool %s: %s=%s %s: %s", pool.Name, c.Type, c.Status, c.Reason, c.Message)
				return nil
			}
		}
		return fmt.Errorf("no pool of %s has %s=%s, only %+v", node, condition, status, seen)
	})
}

// Neutron answers 503 for half a minute (a tenth with -short): the pod says so, and runs after it.
func TestNeutronAnswers503(t *testing.T) {
	f := onBed(t)
	f.unbroken(t)
	heal := f.neutronAnswers503(t)
	pod := must(f.Pod(t.Context(), f.namespace, "patient", "n1"))(t)
	f.event(t, pod.Name, "Unavailable: The pod waits for a port")
	f.condition(t, "n1", v1.ConditionReady, metav1.ConditionFalse, "503")
	outage := 30 * time.Second
	if testing.Short() {
		outage /= 10
	}
	time.Sleep(outage)
	heal()
	f.running(t, pod.Name)
	f.condition(t, "n1", v1.ConditionReady, metav1.ConditionTrue, "")
}

// neutronAnswers503 puts a server that says only 503 before the real one, by a
// redirection inside the control plane's network namespace.
func (f *fixture) neutronAnswers503(t testing.TB) (heal func()) {
	t.Helper()
	space := os.Getenv("KURYR_BED_NETNS")
	listener := listenIn(t, space)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the server is told to say so by a test", http.StatusServiceUnavailable)
	})}
	go func() { _ = server.Serve(listener) }() // ends with Close
	nft := func(script string) {
		command := exec.Command("ip", "netns", "exec", space, "nft", script)
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("nft %q: %v: %s", script, err, out)
		}
	}
	port := listener.Addr().(*net.TCPAddr).Port
	// A connection whose answer is on its way when conntrack begins is known to it the
	// wrong way round and is not redirected: what still comes to the real port is reset.
	nft(fmt.Sprintf(`add table ip fault; add chain ip fault pre { type nat hook prerouting priority -100; };
		add rule ip fault pre tcp dport 9696 redirect to :%d;
		add chain ip fault in { type filter hook input priority 0; };
		add rule ip fault in tcp dport 9696 reject with tcp reset`, port))
	healed := false
	heal = func() {
		if !healed {
			healed = true
			nft("delete table ip fault")
			_ = server.Close() // what it still says does not matter
		}
	}
	t.Cleanup(heal)
	return heal
}

// listenIn listens in a network namespace. The socket stays there; the thread
// that made it is not used again.
func listenIn(t testing.TB, space string) net.Listener {
	t.Helper()
	made := make(chan net.Listener)
	go func() {
		defer close(made)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		handle, err := netns.GetFromName(space)
		if err != nil {
			t.Errorf("opening network namespace %q: %v", space, err)
			return
		}
		defer handle.Close()
		if err := netns.Set(handle); err != nil {
			t.Errorf("entering network namespace %q: %v", space, err)
			return
		}
		listener, err := net.Listen("tcp4", "0.0.0.0:0")
		if err != nil {
			t.Errorf("listening in network namespace %q: %v", space, err)
			return
		}
		made <- listener
	}()
	listener := <-made
	if listener == nil {
		t.FailNow()
	}
	return listener
}

// The quota of ports is used up: pod and pool say so, and a raised quota is enough.
func TestOverQuota(t *testing.T) {
	f := onBed(t)
	f.unbroken(t)
	restore := f.useUpQuota(t)
	pod := must(f.Pod(t.Context(), f.namespace, "patient", "n1"))(t)
	f.event(t, pod.Name, "quota")
	f.condition(t, "n1", v1.ConditionOverQuota, metav1.ConditionTrue, "port")
	restore()
	f.running(t, pod.Name)
	f.condition(t, "n1", v1.ConditionOverQuota, metav1.ConditionFalse, "")
}

// useUpQuota leaves no room for another port, until restore or the test's end.
func (f *fixture) useUpQuota(t testing.TB) (restore func()) {
	t.Helper()
	project := os.Getenv("PROJECT")
	limits := must(quotas.GetDetail(t.Context(), f.Neutron, project).Extract())(t)
	setQuota := func(n int) {
		if _, err := quotas.Update(context.Background(), f.Neutron, project, quotas.UpdateOpts{Port: &n}).Extract(); err != nil {
			t.Error(err)
		}
	}
	restore = func() { setQuota(limits.Port.Limit) }
	t.Cleanup(restore)
	setQuota(limits.Port.Used)
	return restore
}

// The configuration names a subnet that does not exist: the pod says which, and
// runs once the configuration is mended, without a restart.
func TestWrongSubnet(t *testing.T) {
	f := onBed(t)
	f.unbroken(t)
	const wrong = "00000000-dead-4bad-8bad-000000000000"
	f.configure(t, func(pods map[string]any) { pods["subnetIDs"] = []string{wrong} })
	pod := f.doomed(t, wrong)
	f.condition(t, pod.Spec.NodeSelector[corev1.LabelHostname], v1.ConditionReady, metav1.ConditionFalse, wrong)
	f.configure(t, func(pods map[string]any) { pods["subnetIDs"] = []string{os.Getenv("POD_SUBNET")} })
	f.running(t, pod.Name)
}

// doomed makes pods until one is refused for want of the subnet: the controller
// sees a change of the configuration when kubelet has written it.
func (f *fixture) doomed(t testing.TB, subnet string) *corev1.Pod {
	t.Helper()
	for i := range 20 {
		pod := must(f.Pod(t.Context(), f.namespace, fmt.Sprintf("patient-%d", i), "n2"))(t)
		for range 25 {
			time.Sleep(200 * time.Millisecond)
			now := &corev1.Pod{}
			if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
				t.Fatal(err)
			}
			if pod = now; pod.Status.PodIP != "" {
				break
			}
		}
		if pod.Status.PodIP == "" && pod.Status.Phase == corev1.PodPending {
			f.event(t, pod.Name, subnet)
			return pod
		}
	}
	t.Fatal("the controller has not taken up the changed configuration")
	return nil
}

// A node that is no host of the SDN's: the pod says so, and no port is left over.
func TestNodeThatIsNoChassis(t *testing.T) {
	f := onBed(t)
	f.unbroken(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ghost"}}
	if err := f.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	template := cluster.Template(nil, "")
	pod := &corev1.Pod{Spec: template.Spec}
	pod.Namespace, pod.Name, pod.Spec.NodeName = f.namespace, "lost", node.Name
	if err := f.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// There is no kubelet that would confirm it.
		for _, object := range []client.Object{pod, node} {
			if err := client.IgnoreNotFound(f.Client.Delete(context.Background(), object, client.GracePeriodSeconds(0))); err != nil {
				t.Error(err)
			}
		}
	})
	f.event(t, pod.Name, `HostUnusable`)
	f.condition(t, node.Name, v1.ConditionReady, metav1.ConditionFalse, `"ghost"`)
	eventually(t, func() error {
		ports, err := f.KuryrPorts(t.Context())
		if err != nil {
			return err
		}
		for _, p := range ports {
			if p.HostID == node.Name {
				return fmt.Errorf("port %s is left on host %s", p.ID, p.HostID)
			}
		}
		return nil
	})
}
