// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	plan "github.com/kuryr-go/kuryr/internal/plan/service"
)

func (t *tool) listServicesCommand() *cobra.Command {
	var format string
	var everywhere bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List Services with their load balancers",
		Example: "  kubectl kuryr services list -n shop\n" +
			"  kubectl kuryr services list -A -o wide",
		Args: cobra.NoArgs,
		RunE: t.prints(&format, []string{"wide", "json", "yaml", "name"}, func(cmd *cobra.Command, c client.Client, _ []string) error {
			namespace := ""
			if !everywhere {
				var err error
				if namespace, err = t.namespace(); err != nil {
					return err
				}
			}
			tellFirstStart(cmd, c)
			all, err := services(cmd.Context(), c, namespace)
			if err != nil {
				return err
			}
			if len(all) == 0 && (format == "" || format == "wide") {
				fmt.Fprintln(cmd.ErrOrStderr(), "There are no Services"+in(namespace)+".")
				return nil
			}
			return writeServices(cmd.OutOrStdout(), all, format, everywhere, t.now())
		}),
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "wide, json, yaml or name")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "Services of all namespaces")
	return cmd
}

func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// writeServices writes Services as a table, or in another format.
func writeServices(w io.Writer, all []served, format string, everywhere bool, now time.Time) error {
	switch format {
	case "json", "yaml":
		return encode(w, format, objects(all))
	case "name":
		for i := range all {
			kind := "service/"
			if all[i].svc == nil {
				kind = "kuryrloadbalancer.openstack.org/"
			}
			if _, err := fmt.Fprintln(w, kind+all[i].key().Name); err != nil {
				return err
			}
		}
		return nil
	}
	columns := []string{"NAME", "TYPE", "VIP", "PUBLIC", "PROVIDER", "PROVISIONING", "OPERATING", "MEMBERS", "STATUS", "AGE"}
	if everywhere {
		columns = append([]string{"NAMESPACE"}, columns...)
	}
	if format == "wide" {
		columns = append(columns, "LISTENERS", "LOADBALANCERS", "FLOATING IP", "MESSAGE")
	}
	table := newTable(w, columns...)
	for i := range all {
		row := serviceCells(&all[i], format == "wide", now)
		if everywhere {
			row = append([]string{all[i].key().Namespace}, row...)
		}
		table.row(row...)
	}
	return table.flush()
}

func serviceCells(s *served, wide bool, now time.Time) []string {
	out := []string{s.key().Name, s.kind(), join(s.vips()), cmp.Or(s.public(), "-")}
	listeners, members := compare(s.klb).counts()
	out = append(out, s.of(func(lb *v1.LoadBalancerStatus) string { return lb.Provider }),
		s.of(func(lb *v1.LoadBalancerStatus) string { return lb.ProvisioningStatus }),
		s.of(func(lb *v1.LoadBalancerStatus) string { return lb.OperatingStatus }), members, strings.Join(s.standing(), ","), age(now, s.since()))
	if !wide {
		return out
	}
	var ids []string
	floating := ""
	if s.klb != nil {
		for _, lb := range s.klb.Status.LoadBalancers {
			ids = append(ids, lb.ID)
		}
		if p := s.klb.Status.PublicIP; p != nil {
			floating = p.ID
		}
	}
	return append(out, listeners, join(ids), cmp.Or(floating, "-"), cmp.Or(strings.ReplaceAll(s.message(), "\n", "; "), "-"))
}

func (s *served) kind() string {
	if s.svc == nil {
		return "-"
	}
	return cmp.Or(string(s.svc.Spec.Type), "ClusterIP")
}

func (s *served) since() metav1.Time {
	if s.svc == nil {
		return s.klb.CreationTimestamp
	}
	return s.svc.CreationTimestamp
}

// vips returns the addresses at which load balancers are to be.
func (s *served) vips() []string {
	var out []string
	if s.klb != nil {
		for _, vip := range s.klb.Spec.VIPs {
			out = append(out, vip.IP)
		}
		return out
	}
	if s.svc.Spec.ClusterIP != corev1.ClusterIPNone {
		out = append(out, s.svc.Spec.ClusterIPs...)
	}
	return out
}

// public returns the floating IP, or how else the Service is reached from outside.
func (s *served) public() string {
	if s.klb != nil && s.klb.Status.PublicIP != nil {
		return s.klb.Status.PublicIP.IP
	}
	if s.klb != nil && s.klb.Spec.PublicIP != nil {
		return "<pending>"
	}
	return ""
}

// of returns the common value of the load balancers, or the value of each.
func (s *served) of(what func(*v1.LoadBalancerStatus) string) string {
	if s.klb == nil {
		return "-"
	}
	var out []string
	for i := range s.klb.Status.LoadBalancers {
		out = append(out, cmp.Or(what(&s.klb.Status.LoadBalancers[i]), "-"))
	}
	if len(out) > 1 && !slices.ContainsFunc(out, func(v string) bool { return v != out[0] }) {
		out = out[:1]
	}
	return join(out)
}

// planned returns the planner's condition of a Service. It is nil if there is none: then everything
// is planned, or no controller has planned the Service.
func (s *served) planned() *metav1.Condition {
	if s.svc == nil {
		return nil
	}
	return meta.FindStatusCondition(s.svc.Status.Conditions, v1.ConditionPlanned)
}

func is(c *metav1.Condition, status metav1.ConditionStatus) bool {
	return c != nil && c.Status == status
}

// lacking says why a Service has no KuryrLoadBalancer.
func (s *served) lacking() (reason, text string) {
	switch c := s.planned(); {
	case !s.svc.DeletionTimestamp.IsZero():
		return "Deleting", "The Service is being deleted; its load balancer is gone."
	case s.svc.Spec.Type == corev1.ServiceTypeExternalName:
		return "ExternalName", "It is a DNS alias, and gets no load balancer."
	case s.svc.Spec.ClusterIP == corev1.ClusterIPNone:
		return "Headless", "It has no cluster IP: it gets no load balancer."
	case !plan.Wanted(s.svc):
		return "LeftAlone", "A label says that it is not for Kuryr."
	case is(c, metav1.ConditionFalse):
		return c.Reason, c.Message
	}
	return "NotPlanned", "No controller has planned it: check that it has an EndpointSlice, which Kubernetes writes only for a Service with a selector, " +
		"that a controller runs, and that its configuration has services.subnetIDs."
}

// standing sums up the conditions of a Service: Ready, or the reason why not, and further
// conditions.
func (s *served) standing() []string {
	if s.klb == nil {
		reason, _ := s.lacking()
		return []string{reason}
	}
	out := []string{"Unknown"}
	conditions := s.klb.Status.Conditions
	if ready := meta.FindStatusCondition(conditions, v1.ConditionReady); is(ready, metav1.ConditionTrue) {
		out[0] = v1.ConditionReady
	} else if ready != nil {
		out[0] = cmp.Or(ready.Reason, "NotReady")
	}
	add := func(word string) {
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	switch {
	case !s.klb.DeletionTimestamp.IsZero(), s.svc != nil && !s.svc.DeletionTimestamp.IsZero():
		add("Deleting")
	case s.svc == nil:
		add("NoService")
	}
	for _, kind := range []string{v1.ConditionSupported, v1.ConditionInSync} {
		if c := meta.FindStatusCondition(conditions, kind); is(c, metav1.ConditionFalse) {
			add(c.Reason)
		}
	}
	if c := s.planned(); is(c, metav1.ConditionFalse) {
		add(c.Reason)
	}
	if meta.IsStatusConditionTrue(conditions, v1.ConditionProgressing) {
		add(v1.ConditionProgressing)
	}
	return out
}

// message joins the messages of the conditions that report a problem.
func (s *served) message() string {
	if s.klb == nil {
		_, text := s.lacking()
		return text
	}
	var out []string
	if c := s.planned(); is(c, metav1.ConditionFalse) {
		out = append(out, c.Message)
	}
	for _, kind := range []string{v1.ConditionSupported, v1.ConditionInSync, v1.ConditionReady} {
		if c := meta.FindStatusCondition(s.klb.Status.Conditions, kind); is(c, metav1.ConditionFalse) {
			out = append(out, c.Message)
		}
	}
	return strings.Join(out, "; ")
}

// objects is Services, each with its KuryrLoadBalancer, as one list that kubectl understands.
func objects(all []served) any {
	var list []client.Object
	for i := range all {
		if svc := all[i].svc; svc != nil {
			list = append(list, svc)
		}
		if klb := all[i].klb; klb != nil {
			list = append(list, klb)
		}
	}
	return listOf(list...)
}
