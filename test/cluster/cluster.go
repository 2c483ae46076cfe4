// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster reaches the running test bed, for the demo and the
// end-to-end tests: the Kubernetes API, Neutron's and Octavia's as their users see them
// (not through internal/sdn, which is under test), and the nodes themselves.
//
// It finds all of them in the environment that `hack/bed/bed env` prints.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Image is the image of the pods that tests make; the bed has it on its nodes.
const Image = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"

// Cluster is a live cluster and its cloud. Its methods may be called from
// several goroutines at once.
type Cluster struct {
	Client  client.WithWatch // Kubernetes' and Kuryr's objects
	Kube    kubernetes.Interface
	Neutron *gophercloud.ServiceClient
	Octavia *gophercloud.ServiceClient // nil: the cloud has none
	config  *rest.Config
}

// Connect reaches the cluster of $KUBECONFIG and the cloud of $OS_CLOUD.
func Connect(ctx context.Context) (*Cluster, error) {
	if os.Getenv("KUBECONFIG") == "" || os.Getenv("OS_CLOUD") == "" {
		return nil, fmt.Errorf("KUBECONFIG or OS_CLOUD is not set: eval \"$(hack/bed/bed env)\" first")
	}
	restConfig, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	restConfig.QPS, restConfig.Burst = 200, 400 // the tests are not what is to be throttled
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c := &Cluster{config: restConfig}
	if c.Client, err = client.NewWithWatch(restConfig, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if c.Kube, err = kubernetes.NewForConfig(restConfig); err != nil {
		return nil, err
	}
	if err := c.reachCloud(ctx); err != nil {
		return nil, fmt.Errorf("reaching the cloud: %w", err)
	}
	return c, nil
}

func (c *Cluster) reachCloud(ctx context.Context) error {
	auth, endpoint, tls, err := clouds.Parse()
	if err != nil {
		return err
	}
	provider, err := config.NewProviderClient(ctx, auth, config.WithTLSConfig(tls))
	if err != nil {
		return err
	}
	if c.Neutron, err = openstack.NewNetworkV2(provider, endpoint); err != nil {
		return err
	}
	c.Octavia, err = openstack.NewLoadBalancerV2(provider, endpoint)
	if missing := (&gophercloud.ErrEndpointNotFound{}); errors.As(err, &missing) {
		c.Octavia, err = nil, nil
	}
	return err
}

// Exec runs a command in a pod's first container and returns what it printed.
func (c *Cluster) Exec(ctx context.Context, namespace, pod string, command ...string) (string, error) {
	request := c.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true},
		clientgoscheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(c.config, "POST", request.URL())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return stdout.String(), fmt.Errorf("running %q in pod %s/%s: %w: %s", command, namespace, pod, err,
			strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// OnNode runs a command as root on a node and returns what it printed.
func (c *Cluster) OnNode(ctx context.Context, node string, command ...string) (string, error) {
	return Bed(ctx, append([]string{"exec", node}, command...)...)
}

// OnMachine runs a command on the machine of the test bed, which is neither a node
// nor on a network of the cloud's, and returns what it printed.
func OnMachine(ctx context.Context, command ...string) (string, error) {
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Bed runs hack/bed/bed, as a person would, and returns what it printed.
func Bed(ctx context.Context, args ...string) (string, error) {
	bed := os.Getenv("KURYR_BED_COMMAND")
	if bed == "" {
		return "", fmt.Errorf("KURYR_BED_COMMAND is not set: eval \"$(hack/bed/bed env)\" first")
	}
	return OnMachine(ctx, append([]string{bed}, args...)...)
}

// EnsureNamespace makes a namespace, changed by change, unless it is there, and waits until ctx ends for
// pods to be possible in it: until an older one of its name is gone, and Kubernetes
// has given it the service account that they run as. That takes a while where the API
// server was away and the controllers wait with their next try.
func (c *Cluster) EnsureNamespace(ctx context.Context, name string, change ...func(*corev1.Namespace)) error {
	return Until(ctx, func() error {
		namespace := &corev1.Namespace{}
		namespace.Name = name
		for _, c := range change {
			c(namespace)
		}
		if err := c.Client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
			return err
		}
		if namespace.DeletionTimestamp != nil {
			return fmt.Errorf("an older namespace %s is still there", name)
		}
		return c.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	})
}
