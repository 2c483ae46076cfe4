// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/collector"
)

// noObjects is the API server of a cluster that does not exist any more: all that the cluster has in the
// cloud is left over.
type noObjects struct{ client.Client }

func (noObjects) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (noObjects) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// connectGone is connect for the cluster of --cluster-gone.
func (f *gcFlags) connectGone(ctx context.Context, file, _ string, load func(string) (*config.Config, error)) (to connection, err error) {
	if to.config, err = load(file); err != nil {
		return to, err
	}
	if err = f.checkGone(); err != nil {
		return to, err
	}
	if err = doesNotLive(ctx, *f, to.config.ClusterID); err != nil {
		return to, err
	}
	to.client, to.config.ClusterID = noObjects{}, f.gone
	to.config.Services.SubnetIDs = nil // ports that Octavia has left there carry no mark
	if to.backend, err = newBackend(ctx, to.client, to.config, nil); err != nil {
		return to, err
	}
	// A mark is text: in another project somebody else has written it.
	own, err := to.backend.OwnProject(ctx)
	if err == nil && own == "" {
		err = errors.New("the cloud does not tell the project of the credential, so whose a resource is cannot be determined")
	}
	return to, err
}

func (f *gcFlags) checkGone() error {
	switch {
	case f.gone == "":
		return errors.New("--yes has an effect with --cluster-gone only: add it, or remove --yes")
	case f.yes != "" && f.yes != f.gone:
		return fmt.Errorf("--yes is %q, not the ID %q of --cluster-gone", f.yes, f.gone)
	case f.deletes:
		return errors.New("--cluster-gone deletes after a confirmation: remove --delete")
	}
	return nil
}

// doesNotLive returns an error if the cluster answers: the ID is that of the configuration, or its own.
// Without access to a cluster it returns nil, and the age of the resources decides.
func doesNotLive(ctx context.Context, f gcFlags, configured string) error {
	cluster, err := clusterConfig(f.kubeconfig)
	if err != nil && f.kubeconfig == "" {
		return nil
	}
	if err != nil {
		return err
	}
	cluster.Timeout = 10 * time.Second
	reader, err := client.New(cluster, client.Options{})
	if err != nil {
		return fmt.Errorf("reaching the Kubernetes API: %w", err)
	}
	id, err := clusterID(ctx, reader, "")
	switch {
	case err == nil && (id == f.gone || configured == f.gone):
		return fmt.Errorf("cluster %s is not gone: its API server answers. `kuryr gc` deletes what a living cluster has left over", f.gone)
	case apierrors.ReasonForError(err) != "":
		return fmt.Errorf("the API server answers, and does not say whether it is of cluster %s; remove --kubeconfig, or correct it: %w", f.gone, err)
	}
	return ctx.Err()
}

// confirmed prints what will be deleted, and reports whether a person wants it.
func (r *gc) confirmed(judged []collector.Judged, fresh int, unsure error) (bool, error) {
	if unsure != nil {
		return false, unsure
	}
	if fresh > 0 {
		return false, fmt.Errorf("%d resources were made or changed within %s: a controller of the cluster may still run. Stop it, wait, and run this again", fresh, r.flags.grace)
	}
	for i := range judged {
		if j := &judged[i]; j.Verdict == collector.Adopts { // a floating IP; nobody is there to adopt it
			j.Verdict, j.Err = collector.Leaves, errors.New("another port has it")
		}
	}
	if len(judged) == 0 || r.flags.yes != "" {
		return true, nil
	}
	r.print(judged)
	fmt.Fprint(r.out, "What would be deleted cannot be restored. Type the ID of the cluster to delete it: ")
	line, _ := bufio.NewReader(r.in).ReadString('\n')
	if strings.TrimSpace(line) != r.flags.gone {
		fmt.Fprintln(r.out, "\nThat is not the ID. Nothing was done.")
		return false, nil
	}
	return true, nil
}
