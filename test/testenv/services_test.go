//go:build unix

package testenv_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/test/testenv"
)

func services(t *testing.T) (process *testenv.Process, dsn string) {
	t.Helper()
	p := testenv.StartProcess(t, testenv.ProcessConfig{Package: "./test/testenv/cmd/services", Args: []string{"postgres"},
		Env: []string{"TMPDIR=" + testenv.ServerDir(t)}}) // a killed keeper leaves its data behind
	p.AwaitOutput(2*time.Minute, "DATABASE_URL=")
	return p, strings.TrimSpace(strings.TrimPrefix(p.Stdout(), "DATABASE_URL="))
}

func TestServicesEndWithTheirKeeper(t *testing.T) {
	p, dsn := services(t)
	if n := count(t, connect(t, dsn), "pg_database"); n < 3 {
		t.Errorf("%d databases", n)
	}
	if code := p.Stop(30 * time.Second); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}

	p, dsn = services(t)
	conn := connect(t, dsn)
	p.Signal(syscall.SIGKILL)
	testenv.Await(t, 30*time.Second, func() (bool, string) {
		return conn.Ping(t.Context()) != nil, "the server outlives the process that started it"
	})
}
