//go:build unix

// Package cachedir keeps what was fetched once (server binaries, libraries)
// in a directory shared by every process of the machine's user.
package cachedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// EnvVar names the environment variable that moves the cache.
const EnvVar = "ORDERPROJECTOR_CACHE_DIR"

// Root is the directory of the cache: $ORDERPROJECTOR_CACHE_DIR, else
// orderprojector in the user's cache directory. For root it is in /var/cache,
// since servers that refuse to run as root are started as another user, who
// cannot look into root's home.
func Root() (string, error) {
	if dir := os.Getenv(EnvVar); dir != "" {
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/cache/orderprojector", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a cache directory (set HOME or %s): %w", EnvVar, err)
	}
	return filepath.Join(dir, "orderprojector"), nil
}

// Fill returns the cached directory called name, which fill is asked to
// produce in an empty directory when it does not exist yet. Several processes
// may call it at once: one fills, the others wait, and a fill that fails or is
// interrupted leaves nothing behind that looks complete.
func Fill(ctx context.Context, name string, fill func(ctx context.Context, dir string) error) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache directory (set %s to a writable one): %w", EnvVar, err)
	}
	unlock, err := lock(ctx, filepath.Join(root, name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil { // filled while we waited
		return dir, nil
	}
	unfinished, err := os.MkdirTemp(root, name+".tmp-")
	if err != nil {
		return "", fmt.Errorf("creating a directory in the cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(unfinished) }() // gone by then when all went well
	if err := fill(ctx, unfinished); err != nil {
		return "", err
	}
	if err := readable(unfinished); err != nil {
		return "", fmt.Errorf("making %s readable: %w", unfinished, err)
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return "", fmt.Errorf("keeping what was fetched: %w", err)
	}
	return dir, nil
}

// lock takes an exclusive lock that also holds between processes and ends
// with them.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the cache's lock (set %s to a writable directory): %w", EnvVar, err)
	}
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for another process that fills the cache (%s): %w", path, context.Cause(ctx))
		case <-retry.C:
		}
	}
}

// readable opens a tree to every user, whatever the umask was.
func readable(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if d.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}
