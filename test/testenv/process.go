//go:build unix

package testenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/child"
)

// Program is the package of the program under test, as go build names it.
const Program = "./cmd/orderprojector"

// ProcessConfig says what to run.
type ProcessConfig struct {
	// Package is the main package, relative to the module; empty means Program.
	Package string
	// Args are the arguments after the program's name.
	Args []string
	// Env is added to the environment of the test, "NAME=value" each.
	// Variables of the program's own configuration are not inherited.
	Env []string
	// Dir is the working directory; empty means a temporary one.
	Dir string
	// Stderr takes the place of the file that Process.Stderr reads.
	Stderr *os.File
	// Race builds with the race detector, which is slower.
	Race bool
}

// Process is the program under test, running as operators run it. The methods
// may be called from several goroutines.
type Process struct {
	t              testing.TB
	child          *child.Child
	stdout, stderr string // files
	name           string
}

// StartProcess builds the program, once per test binary, and starts it. It is
// killed at the end of the test, and its output shown when the test failed.
func StartProcess(t testing.TB, config ProcessConfig) *Process {
	t.Helper()
	needs(t, "a build of the program")
	if config.Package == "" {
		config.Package = Program
	}
	binary := shared.programs.build(t, config.Package, config.Race)
	output := t.TempDir()
	p := &Process{t: t, stdout: filepath.Join(output, "stdout"), stderr: filepath.Join(output, "stderr"),
		name: filepath.Base(config.Package) + " " + strings.Join(config.Args, " ")}
	stdout, err := os.Create(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	stderr, err := os.Create(p.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()

	// The process ends by the methods of this type, not with a context.
	cmd := exec.CommandContext(context.Background(), binary, config.Args...)
	cmd.Stdout, cmd.Stderr = stdout, cmp.Or(config.Stderr, stderr)
	cmd.Env = append(environment(), config.Env...)
	if cmd.Dir = config.Dir; cmd.Dir == "" {
		cmd.Dir = t.TempDir()
	}
	if p.child, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		t.Fatalf("starting %s: %v", p.name, err)
	}
	t.Cleanup(func() {
		p.child.Kill()
		if t.Failed() {
			t.Logf("%s (exit code %d)\nstdout:\n%s\nstderr:\n%s", p.name, p.child.ExitCode(),
				tailOfFile(p.stdout, 60), tailOfFile(p.stderr, 60))
		}
	})
	return p
}

// environment is the test's own without what configures the program.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case strings.HasPrefix(name, "KAFKA_"), strings.HasPrefix(name, "ORDERPROJECTOR_"), strings.HasPrefix(name, "PG"),
			name == databaseURL:
		default:
			env = append(env, v)
		}
	}
	return env
}

// Stdout is what the process wrote to standard output so far.
func (p *Process) Stdout() string { return p.read(p.stdout) }

// Stderr is what the process wrote to standard error so far.
func (p *Process) Stderr() string { return p.read(p.stderr) }

// Pid is the process ID.
func (p *Process) Pid() int { return p.child.Pid() }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.child.Done() }

// AwaitOutput waits until the process has written text to either output, and
// fails the test when it ends without, or after timeout.
func (p *Process) AwaitOutput(timeout time.Duration, text string) {
	p.t.Helper()
	Await(p.t, timeout, func() (bool, string) {
		running := p.child.Running() // before reading, lest the last words be missed
		if strings.Contains(p.Stdout(), text) || strings.Contains(p.Stderr(), text) {
			return true, ""
		}
		if !running {
			p.t.Fatalf("%s ended with exit code %d before it said %q", p.name, p.child.ExitCode(), text)
		}
		return false, fmt.Sprintf("%s has not said %q", p.name, text)
	})
}

// Wait waits for the process to end by itself and returns its exit code (-1
// when a signal ended it), and fails the test after timeout.
func (p *Process) Wait(timeout time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.child.Done():
		return p.child.ExitCode()
	case <-timer.C:
		p.t.Fatalf("%s still runs after %v", p.name, timeout)
		return -1
	}
}

// Stop sends SIGTERM and returns the exit code; it fails the test when the
// process does not end within grace.
func (p *Process) Stop(grace time.Duration) int {
	p.t.Helper()
	giveUp, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if !p.child.Stop(syscall.SIGTERM, giveUp.Done()) {
		p.t.Fatalf("%s did not end within %v of SIGTERM", p.name, grace)
	}
	return p.child.ExitCode()
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.child.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Kill ends the process as a crash does (SIGKILL).
func (p *Process) Kill() { p.child.Kill() }

// Pause freezes the process (SIGSTOP): to others it is a member that hangs.
func (p *Process) Pause() {
	p.t.Helper()
	if err := p.child.Pause(); err != nil {
		p.t.Fatal(err)
	}
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	p.t.Helper()
	if err := p.child.Resume(); err != nil {
		p.t.Fatal(err)
	}
}

// PeakMemory is the largest resident memory so far, in bytes. The process must
// be running, and the system Linux.
func (p *Process) PeakMemory() int64 {
	p.t.Helper()
	if bytes, running := p.TryPeakMemory(); running {
		return bytes
	}
	p.t.Fatalf("the memory of %s is not known", p.name)
	return 0
}

// TryPeakMemory is PeakMemory of a process that may have ended; running is false then.
func (p *Process) TryPeakMemory() (bytes int64, running bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

func (p *Process) read(path string) string {
	p.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// programs are the binaries that were built.
type programs struct {
	mu    sync.Mutex
	dir   string
	built map[string]error // by file name
}

func (b *programs) build(t testing.TB, pkg string, race bool) (binary string) {
	t.Helper()
	if !shared.mainRuns {
		t.Fatal("this package's TestMain must call testenv.Main, which removes what was built")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "orderprojector-test-bin-")
		if err != nil {
			t.Fatal(err)
		}
		b.dir, b.built = dir, map[string]error{}
	}
	name := filepath.Base(pkg)
	args := []string{"build", "-buildvcs=false"} // works in whatever checkout
	if race {
		name += "-race"
		args = append(args, "-race")
	}
	binary = filepath.Join(b.dir, name)
	err, known := b.built[name]
	if !known {
		err = goBuild(append(args, "-o", binary, pkg))
		b.built[name] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func (b *programs) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}

func goBuild(args []string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// moduleRoot is the nearest parent of the working directory with a go.mod;
// tests run in the directory of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod in any parent directory")
		}
		dir = parent
	}
}
