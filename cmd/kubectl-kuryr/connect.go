// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// patience bounds one request if --request-timeout does not: a load balancer
// between here and the API server may drop a connection and tell nobody.
const patience = 30 * time.Second

// connection is how to reach the cluster, by the flags that kubectl has.
type connection struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

func (c *connection) bind(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: $KUBECONFIG or ~/.kube/config")
	clientcmd.BindOverrideFlags(&c.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	// Pools are of the cluster: for them a namespace is taken, as kubectl's wrappers
	// give one to every command, and means nothing.
	flags.Lookup(clientcmd.FlagNamespace).Usage = "namespace of Services; empty: that of the kubeconfig's context"
}

func (c *connection) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
}

// namespace is the one that commands are for if they do not say otherwise.
func (c *connection) namespace() (string, error) {
	name, _, err := c.config().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return name, nil
}

func (c *connection) client() (client.Client, error) {
	cfg, err := c.config().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: give --kubeconfig, or set KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cfg.QPS = -1 // the API server has its own fairness
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	cl, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reaching the Kubernetes API at %s: %w", cfg.Host, err)
	}
	return cl, nil
}

// explain returns an error of the API server in words for a person.
func explain(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s: this cluster does not know Kuryr's objects: Kuryr is not installed in it, or an older one is", doing)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w (a role has to allow it: docs/kubectl-kuryr.md names the rights)", doing, err)
	case errors.As(err, new(*url.Error)):
		return fmt.Errorf("%s: the Kubernetes API does not answer: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// tellFirstStart writes on stderr why Kuryr serves nothing yet. It writes nothing to users who may not
// read the KuryrCluster.
func tellFirstStart(cmd *cobra.Command, c client.Client) {
	var cluster v1.KuryrCluster
	if err := c.Get(cmd.Context(), client.ObjectKey{Name: v1.ClusterName}, &cluster); err != nil {
		return
	}
	if s := meta.FindStatusCondition(cluster.Status.Conditions, v1.ConditionServing); s != nil && s.Status == metav1.ConditionFalse {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s All findings: kubectl describe kuryrclusters\n", s.Reason, s.Message)
	}
}

// kinds is how a name may begin: as -o name and kubectl write it.
var kinds = []string{"kuryrportpool.openstack.org", "kuryrportpools.openstack.org", "kuryrportpool", "kuryrportpools", "kpp"}

// bare returns a name without its kind.
func bare(name string) string {
	if kind, rest, found := strings.Cut(name, "/"); found && slices.Contains(kinds, kind) {
		return rest
	}
	return name
}

// pool returns the pool of that name.
func pool(ctx context.Context, c client.Client, name string) (*v1.KuryrPortPool, error) {
	name = bare(name)
	var p v1.KuryrPortPool
	err := c.Get(ctx, client.ObjectKey{Name: name}, &p)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no pool %q; 'kubectl kuryr pools list' lists the existing ones", name)
	}
	return &p, explain("reading pool "+name, err)
}

// pools returns the pools of a node, or all if node is empty, by name.
func pools(ctx context.Context, c client.Client, node string) ([]v1.KuryrPortPool, error) {
	var list v1.KuryrPortPoolList
	var options []client.ListOption
	if node != "" {
		options = append(options, client.MatchingFields{"spec.key.nodeName": node})
	}
	if err := c.List(ctx, &list, options...); err != nil {
		return nil, explain("listing pools", err)
	}
	slices.SortFunc(list.Items, func(a, b v1.KuryrPortPool) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// ports returns the ports of a pool, by name.
func ports(ctx context.Context, c client.Client, pool string) ([]v1.KuryrPort, error) {
	var list v1.KuryrPortList
	if err := c.List(ctx, &list, client.MatchingFields{"spec.pool": pool}); err != nil {
		return nil, explain("listing ports of pool "+pool, err)
	}
	slices.SortFunc(list.Items, func(a, b v1.KuryrPort) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// complete completes the names of pools in a shell.
func (t *tool) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.names(cmd, args, "", &v1.KuryrPortPoolList{})
}

// completeService completes the name of a Service in a shell.
func (t *tool) completeService(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	namespace, err := t.namespace()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return t.names(cmd, args, namespace, &corev1.ServiceList{})
}

// names lists the names of objects that are not in args.
func (t *tool) names(cmd *cobra.Command, args []string, namespace string, list client.ObjectList) ([]string, cobra.ShellCompDirective) {
	c, err := t.client()
	if err != nil || c.List(cmd.Context(), list, client.InNamespace(namespace)) != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		if name := o.(client.Object).GetName(); !slices.Contains(args, name) {
			names = append(names, name)
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
