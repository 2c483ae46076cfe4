// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/kuryr-go/kuryr/internal/config"
)

// report is one call of Watch's function.
type report struct {
	c    *config.Config
	hash string
	err  error
}

func watch(t *testing.T, path string) <-chan report {
	t.Helper()
	reports := make(chan report)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		config.Watch(ctx, path, func(c *config.Config, hash string, err error) {
			select {
			case reports <- report{c, hash, err}:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return reports
}

// next waits for a report with that cluster ID, or for an error if it is "".
// It waits as long as the test may: slow machines are not wrong.
func next(t *testing.T, reports <-chan report, clusterID string) {
	t.Helper()
	select {
	case r := <-reports:
		switch {
		case clusterID == "" && r.err == nil:
			t.Fatalf("got %+v, want an error", r.c)
		case clusterID != "" && r.err != nil:
			t.Fatalf("got error %v, want cluster %s", r.err, clusterID)
		case clusterID != "" && r.c.ClusterID != clusterID:
			t.Fatalf("got cluster %s, want %s", r.c.ClusterID, clusterID)
		case clusterID != "" && r.hash != config.Hash([]byte(cluster(clusterID))):
			t.Fatalf("hash %q is not that of the file", r.hash)
		}
	case <-t.Context().Done():
		t.Fatal("no report")
	}
}

func cluster(id string) string { return minimal + "clusterID: " + id + "\n" }

func TestWatchFollowsAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kuryr.yaml")
		write(t, path, cluster("one"))
		reports := watch(t, path)
		next(t, reports, "one")
		write(t, path, cluster("two"))
		next(t, reports, "two")
		write(t, path, "nonsense")
		next(t, reports, "")
		write(t, path, cluster("two"))
		next(t, reports, "two") // mended: said again, so that the alarm ends
		write(t, path+".new", cluster("three"))
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		next(t, reports, "three")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		next(t, reports, "")
	})
}

// kubelet puts a ConfigMap's files into a new folder and swaps the link ..data
// to it; the file's own link stays.
func TestWatchFollowsAConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "kuryr.yaml")
		swap := func(folder, text string) {
			if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, folder, "kuryr.yaml"), text)
			link := filepath.Join(dir, "..data_tmp")
			if err := os.Symlink(folder, link); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		}
		swap("..1", cluster("one"))
		if err := os.Symlink("..data/kuryr.yaml", path); err != nil {
			t.Fatal(err)
		}
		reports := watch(t, path)
		next(t, reports, "one")
		swap("..2", cluster("two"))
		next(t, reports, "two")
		swap("..3", "pods: []")
		next(t, reports, "")
		swap("..4", cluster("four"))
		next(t, reports, "four")
	})
}

func TestWatchOfAFileToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kuryr.yaml")
		reports := watch(t, path)
		next(t, reports, "")
		write(t, path, cluster("one"))
		next(t, reports, "one")
	})
}
