//go:build unix

package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/child"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/freeport"
)

// PgBouncer is a pooler that gives each transaction whichever of a few sessions is free.
type PgBouncer struct {
	proxied string // address, host:port
}

// StartPgBouncer starts a pooler in transaction mode in front of a server, for one test. Settings are
// parameters of its section [pgbouncer] that override ours.
func StartPgBouncer(t testing.TB, server string, settings map[string]string) *PgBouncer {
	t.Helper()
	needs(t, "PgBouncer")
	binary := findPgBouncer(t)
	target, err := pgx.ParseConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freeport.Take(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := ServerDir(t)
	users := filepath.Join(dir, "users.txt")
	all := map[string]string{
		"listen_addr": "127.0.0.1", "listen_port": strconv.Itoa(ports[0]), "unix_socket_dir": "",
		"auth_type": "trust", "auth_file": users, "pool_mode": "transaction", "default_pool_size": "4",
	}
	for name, value := range settings {
		all[name] = value
	}
	config := fmt.Sprintf("[databases]\n* = host=%s port=%d\n[pgbouncer]\n", target.Host, target.Port)
	for name, value := range all {
		config += name + " = " + value + "\n"
	}
	file, log := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "pgbouncer.log")
	for path, text := range map[string]string{file: config, users: fmt.Sprintf("%q \"\"\n", target.User)} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{file}
	if os.Geteuid() == 0 { // it refuses to run as root
		args = append([]string{"-u", "nobody"}, args...)
	}
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.CommandContext(context.Background(), binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatalf("starting PgBouncer: %v", err)
	}
	t.Cleanup(func() {
		process.Kill()
		showOnFailure(t, "PgBouncer", log)
	})
	p := &PgBouncer{proxied: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	Await(t, 10*time.Second, func() (bool, string) {
		if !process.Running() {
			t.Fatalf("PgBouncer ended:\n%s", tailOfFile(log, 20))
		}
		conn, err := pgx.Connect(t.Context(), p.DSN(t, server))
		if err != nil {
			return false, err.Error()
		}
		return conn.Close(t.Context()) == nil, ""
	})
	return p
}

// findPgBouncer looks beside the PATH, too, because Debian puts it where only root's has it.
func findPgBouncer(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("this test needs PgBouncer: run .ci/install, or install the package pgbouncer")
	return ""
}

// DSN returns a connection string of the URL form with the pooler's address in the place of the server's.
func (p *PgBouncer) DSN(t testing.TB, dsn string) string {
	t.Helper()
	return (&Proxy{addr: p.proxied}).DSN(t, dsn)
}
