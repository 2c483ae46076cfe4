// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nested

import (
	"context"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// kindLabel is what the configuration knows the machine by.
const kindLabel = "e2e.kuryr/machine"

// configure has Kuryr plug the machine's ports as vifType says, and has all ports in
// one subnet, for the rest of the test.
func (b bed) configure(vifType, subnet string) {
	b.t.Helper()
	before, err := b.ChangeConfiguration(b.t.Context(), func(document map[string]any) {
		document["pods"].(map[string]any)["subnetIDs"] = []string{subnet}
		document["nodes"] = []any{map[string]any{
			"nodeSelector": map[string]any{"matchLabels": map[string]string{kindLabel: "virtual"}}, "vifType": vifType,
		}}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.later("restoring the configuration", func(ctx context.Context) error { return b.WriteConfiguration(ctx, before) })
}

// namespace makes the test's own, for its pods.
func (b bed) namespace() {
	b.t.Helper()
	if err := b.EnsureNamespace(b.t.Context(), node); err != nil {
		b.t.Fatal(err)
	}
	b.later("deleting the namespace", func(ctx context.Context) error {
		return b.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: node}})
	})
	b.t.Cleanup(b.deletePods)
}

// node makes the machine's Node. No kubelet runs there: the test does its part. What
// may still hang on it goes before the trunk does.
func (b bed) node(ip string) {
	b.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{kindLabel: "virtual"}}}
	n.Spec.Unschedulable = true // for all but the test's own pods
	if err := b.Client.Create(b.t.Context(), n); err != nil {
		b.t.Fatal(err)
	}
	b.later("deleting the node", func(ctx context.Context) error {
		if err := b.Client.Delete(ctx, n); err != nil {
			return err
		}
		return cluster.Until(ctx, func() error {
			var left v1.KuryrPortList
			err := b.Client.List(ctx, &left, client.MatchingFields{"spec.nodeName": node})
			if err == nil && len(left.Items) > 0 {
				err = fmt.Errorf("%d KuryrPorts are left", len(left.Items))
			}
			return err
		})
	})
	if err := b.heard(b.t.Context(), n, ip); err != nil {
		b.t.Fatal(err)
	}
	go func() { // or the control plane would say that its kubelet is away
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-b.t.Context().Done():
				return
			case <-tick.C:
				_ = b.heard(b.t.Context(), n, ip)
			}
		}
	}()
}

// heard has a node be heard of, at its address. Others write its status, too.
func (b bed) heard(ctx context.Context, n *corev1.Node, ip string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	status := fmt.Appendf(nil, `{"status": {"addresses": [{"type": "InternalIP", "address": %q}],
		"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": %q}]}}`, ip, now)
	return b.Client.Status().Patch(ctx, n.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, status))
}

// pod makes a pod of a node's.
func (b bed) pod(name, of string) *corev1.Pod {
	b.t.Helper()
	t := cluster.Template(nil, "")
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Namespace, pod.Name = node, name
	pod.Spec.NodeName = of
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // no kubelet says that the node is ready
	b.eventually("making pod "+name, func() error { return b.Client.Create(b.t.Context(), pod) })
	return pod
}

func (b bed) running(pod *corev1.Pod) error {
	err := b.Client.Get(b.t.Context(), client.ObjectKeyFromObject(pod), pod)
	if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "") {
		err = fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
	}
	return err
}

// deletePods deletes all at once, as kubelet does when the sandboxes are gone.
func (b bed) deletePods() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), patience)
	defer cancel()
	if err := b.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(node), client.GracePeriodSeconds(0)); err != nil {
		b.t.Errorf("deleting the pods: %v", err)
	}
}

// kubeconfig lets in the machine's daemon, with the rights that daemons have: the token
// is of its node, as one of a pod there would be, and ends with the Node.
func (b bed) kubeconfig() string {
	b.t.Helper()
	n := &corev1.Node{}
	if err := b.Client.Get(b.t.Context(), client.ObjectKey{Name: node}, n); err != nil {
		b.t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
	answer, err := b.Kube.CoreV1().ServiceAccounts(cluster.KuryrNamespace).CreateToken(b.t.Context(), "kuryr-daemon", request, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatalf("getting a token for the daemon: %v", err)
	}
	admin, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	if err == nil {
		err = clientcmdapi.FlattenConfig(admin) // certificates in the file itself
	}
	if err != nil {
		b.t.Fatal(err)
	}
	for name := range admin.AuthInfos {
		admin.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: answer.Status.Token}
	}
	data, err := clientcmd.Write(*admin)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

// daemonConfiguration is Kuryr's, for a node without Open vSwitch.
func (b bed) daemonConfiguration() string {
	b.t.Helper()
	cm := &corev1.ConfigMap{}
	if err := b.Client.Get(b.t.Context(), client.ObjectKey{Namespace: cluster.KuryrNamespace, Name: "kuryr-config"}, cm); err != nil {
		b.t.Fatal(err)
	}
	var document map[string]any
	if err := yaml.Unmarshal([]byte(cm.Data["kuryr.yaml"]), &document); err != nil {
		b.t.Fatal(err)
	}
	document["node"] = map[string]any{"parentInterface": "eth0"}
	data, err := yaml.Marshal(document)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}
