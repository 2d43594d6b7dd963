//go:build unix

package child_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/child"
)

// parentRole makes the test binary play a parent that gets killed.
const parentRole = "ORDERPROJECTOR_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) != "" {
		c, err := child.Start(exec.Command("sleep", "600"), syscall.SIGKILL)
		if err != nil {
			panic(err)
		}
		fmt.Println(c.Pid())
		<-c.Done()
		return
	}
	os.Exit(m.Run())
}

func shell(t *testing.T, script string) (*child.Child, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	c, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { c.Kill(); r.Close() })
	return c, bufio.NewReader(r)
}

func TestStop(t *testing.T) {
	c, out := shell(t, `trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := c.Pause(); err != nil {
		t.Fatal(err)
	}
	if !c.Stop(syscall.SIGTERM, nil) {
		t.Fatal("killed although it obeys")
	}
	if code := c.ExitCode(); code != 7 {
		t.Fatalf("exit code %d", code)
	}
	if c.Running() || c.Err() == nil {
		t.Fatalf("running %v, error %v", c.Running(), c.Err())
	}
	if err := c.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("signalling an ended process: %v", err)
	}
}

func TestStopKillsTheDeaf(t *testing.T) {
	c, out := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	giveUp := make(chan struct{})
	close(giveUp)
	if c.Stop(syscall.SIGTERM, giveUp) {
		t.Fatal("said to have obeyed")
	}
	if code := c.ExitCode(); code != -1 {
		t.Fatalf("exit code %d", code)
	}
}

func TestStartReportsAMissingProgram(t *testing.T) {
	if _, err := child.Start(exec.Command("/does/not/exist"), syscall.SIGKILL); err == nil {
		t.Fatal("no error")
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a process of its parent's death")
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentRole+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	pid := strings.TrimSpace(line)
	deadline := time.After(10 * time.Second)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		// A zombie that nobody reaps yet is dead enough.
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("process %s lives on: %s", pid, stat)
		}
	}
}
