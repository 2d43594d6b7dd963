//go:build unix

package testenv_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/test/testenv"
)

func talker(t *testing.T) *testenv.Process {
	t.Helper()
	t.Setenv("DATABASE_URL", "of the test")
	p := testenv.StartProcess(t, testenv.ProcessConfig{
		Package: "./test/testenv/testdata/talker", Args: []string{"some", "args"}, Env: []string{"TALKER=me"},
	})
	p.AwaitOutput(10*time.Second, "ready")
	return p
}

func TestProcess(t *testing.T) {
	p := talker(t)
	if out := p.Stdout(); strings.TrimSpace(out) != "ready me" {
		t.Errorf("stdout %q", out)
	}
	if out := p.Stderr(); out != "starting with [some args]\n" {
		t.Errorf("stderr %q", out)
	}
	if n := p.PeakMemory(); n < 100<<10 {
		t.Errorf("%d bytes resident", n)
	}
	p.Pause()
	p.Resume()
	p.Pause()
	if code := p.Stop(10 * time.Second); code != 3 { // also out of a pause
		t.Errorf("exit code %d", code)
	}

	p = talker(t)
	p.Kill()
	if code := p.Wait(10 * time.Second); code != -1 {
		t.Errorf("exit code %d of a killed process", code)
	}
}
