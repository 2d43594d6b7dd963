//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Backup copies the server's data to dir, so that
// StartPostgres(PostgresConfig{Dir: dir}) runs a server that knows everything
// committed before Backup began, and nothing committed after it returned: a
// replica that lost the last commits, or last night's backup. The server may
// be running, also under load, or stopped.
//
// It is PostgreSQL's low-level backup, since the fetched binaries come without
// pg_basebackup.
func (p *Postgres) Backup(ctx context.Context, dir string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("copying PostgreSQL's data: %w", err)
	}
	to := filepath.Join(dir, "data")
	if _, err := os.Stat(to); err == nil {
		return fmt.Errorf("copying PostgreSQL's data: %s exists already", to)
	}
	if err := p.account.makeDir(dir); err != nil {
		return fmt.Errorf("copying PostgreSQL's data: %w", err)
	}
	if p.server != nil && p.server.Running() {
		err = p.backupOnline(ctx, to)
	} else {
		err = p.copyTree(ctx, p.data(), to, func(rel string) bool { return rel == "postmaster.pid" })
	}
	if err != nil {
		return fmt.Errorf("copying PostgreSQL's data: %w", err)
	}
	return nil
}

func (p *Postgres) backupOnline(ctx context.Context, to string) error {
	conn, err := pgx.Connect(ctx, p.dsn(p.port, superuser))
	if err != nil {
		return err
	}
	defer conn.Close(ctx) // also drops the temporary slot

	begin, end := "SELECT pg_backup_start('copy', true)", "SELECT labelfile FROM pg_backup_stop(false)"
	if p.binaries.major < 15 {
		begin, end = "SELECT pg_start_backup('copy', true, false)", "SELECT labelfile FROM pg_stop_backup(false, false)"
	}
	// The slot keeps the log that the copy will need from being recycled.
	if _, err := conn.Exec(ctx, "SELECT pg_create_physical_replication_slot('copy_' || pg_backend_pid(), true, true)"); err != nil {
		return fmt.Errorf("keeping the log: %w", err)
	}
	if _, err := conn.Exec(ctx, begin); err != nil {
		return fmt.Errorf("beginning the backup: %w", err)
	}
	if err := p.copyTree(ctx, p.data(), to, notInBackup); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, end).Scan(&label); err != nil {
		return fmt.Errorf("ending the backup: %w", err)
	}
	if err := p.copyTree(ctx, filepath.Join(p.data(), "pg_wal"), filepath.Join(to, "pg_wal"), func(string) bool { return false }); err != nil {
		return err
	}
	path := filepath.Join(to, "backup_label")
	if err := os.WriteFile(path, []byte(label), 0o600); err != nil {
		return err
	}
	return p.account.own(path)
}

// notInBackup names what a running server's backup leaves out: its lock, and
// the contents of directories that it fills anew or that are copied later.
func notInBackup(rel string) bool {
	switch rel {
	case "postmaster.pid", "postmaster.opts":
		return true
	}
	first, inside, _ := strings.Cut(rel, "/")
	switch first {
	case "pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans":
		return inside != ""
	}
	base := filepath.Base(rel)
	return strings.HasPrefix(base, "pgsql_tmp") || strings.HasPrefix(base, ".s.PGSQL") || base == "pg_internal.init"
}

// copyTree copies a data directory for the server's account. Files that
// disappear meanwhile were not needed: replaying the log removes them too.
func (p *Postgres) copyTree(ctx context.Context, from, to string, skip func(rel string) bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != from {
			return nil
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case skip(rel):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			// PostgreSQL insists on a data directory that others cannot read.
			if err := os.MkdirAll(target, 0o700); err != nil {
				return err
			}
			return p.account.own(target)
		case d.Type().IsRegular():
			if err := copyFile(path, target); errors.Is(err, fs.ErrNotExist) {
				return nil
			} else if err != nil {
				return err
			}
			return p.account.own(target)
		default: // sockets; tablespaces are not used
			return nil
		}
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
