//go:build unix

package cachedir_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/cachedir"
)

func TestFillOnceAndKeepNothingOfAFailure(t *testing.T) {
	t.Setenv(cachedir.EnvVar, t.TempDir())
	ctx := context.Background()
	broken := errors.New("no network")

	_, err := cachedir.Fill(ctx, "thing", func(_ context.Context, dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o600); err != nil {
			t.Error(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("got %v, want the filler's error", err)
	}

	var fills atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, err := cachedir.Fill(ctx, "thing", func(_ context.Context, dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "whole"), []byte("x"), 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 || entries[0].Name() != "whole" {
				t.Errorf("entries %v, error %v", entries, err)
			}
		})
	}
	wg.Wait()
	if n := fills.Load(); n != 1 {
		t.Fatalf("filled %d times", n)
	}
	root, err := cachedir.Root()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(root, "thing", "whole"))
	if err != nil || info.Mode().Perm()&0o444 != 0o444 {
		t.Fatalf("not readable by all: %v, %v", info.Mode(), err)
	}
}

func TestWaitingForTheLockEndsWithItsContext(t *testing.T) {
	t.Setenv(cachedir.EnvVar, t.TempDir())
	filling, release := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := cachedir.Fill(context.Background(), "thing", func(context.Context, string) error {
			close(filling)
			<-release
			return nil
		})
		first <- err
	}()
	<-filling
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := cachedir.Fill(ctx, "thing", nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}
