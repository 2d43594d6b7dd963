//go:build unix

package embedded

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that the server runs as.
type account struct {
	name       string
	credential *syscall.Credential // nil: our own user
}

// serverAccount returns our own user, or, since PostgreSQL refuses to run as
// root, one without privileges: "postgres" where it exists, else "nobody".
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("reading the user ID of %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("reading the group ID of %s: %w", name, err)
		}
		return account{name: name, credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as " +
		"(create one, or start as another user than root)")
}

// own hands a file that we wrote to the account.
func (a account) own(path string) error {
	if a.credential == nil {
		return nil
	}
	if err := os.Chown(path, int(a.credential.Uid), int(a.credential.Gid)); err != nil {
		return fmt.Errorf("giving %s to the user %s: %w", path, a.name, err)
	}
	return nil
}

// makeDir creates a directory that belongs to the account and that it can reach.
func (a account) makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating a directory for PostgreSQL: %w", err)
	}
	if err := a.own(dir); err != nil {
		return err
	}
	return a.mustReach(dir)
}

// mustReach returns an error when the account may not enter one of dir's
// parents, which the programs themselves report less clearly.
func (a account) mustReach(dir string) error {
	if a.credential == nil {
		return nil
	}
	for parent := dir; ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return fmt.Errorf("looking at %s: %w", parent, err)
		}
		enter := os.FileMode(0o001)
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			switch {
			case s.Uid == a.credential.Uid:
				enter = 0o100
			case s.Gid == a.credential.Gid:
				enter = 0o010
			}
		}
		if info.Mode().Perm()&enter == 0 {
			return fmt.Errorf("the user %s, as whom PostgreSQL runs because it refuses root, may not enter %s "+
				"(use a directory elsewhere, or chmod o+x %s)", a.name, parent, parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}
