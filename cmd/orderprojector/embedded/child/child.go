//go:build unix

// Package child runs a process that must not outlive the one that started it.
package child

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Child is a running or ended process. Its methods may be called from any
// goroutine, and after the process has ended.
type Child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; set before done is closed

	mu     sync.Mutex
	paused bool
}

// Start starts cmd in a process group of its own, so that an interrupt typed
// at the terminal reaches only the caller, who then ends the child in order.
// Where the system can do it (Linux), the child gets the signal orphaned when
// the caller dies, however it dies.
func Start(cmd *exec.Cmd, orphaned syscall.Signal) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	signalWhenOrphaned(cmd.SysProcAttr, orphaned)

	c := &Child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel's idea of the parent is the thread that forked, so that
		// thread is kept until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// Pid is the process ID.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done is closed when the process has ended and has been reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Running reports whether the process has not ended yet.
func (c *Child) Running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Err waits for the end and returns what exec.Cmd.Wait returned: nil for exit
// code 0, an *exec.ExitError otherwise.
func (c *Child) Err() error {
	<-c.done
	return c.err
}

// ExitCode waits for the end and returns the exit code, or -1 when a signal
// ended the process.
func (c *Child) ExitCode() int {
	<-c.done
	return c.cmd.ProcessState.ExitCode()
}

// Signal sends a signal to the process itself, not to its children. A process
// that has ended is no error.
func (c *Child) Signal(s syscall.Signal) error {
	err := c.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Pause freezes the process (SIGSTOP): it keeps its connections and does
// nothing, as a machine does that hangs.
func (c *Child) Pause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
	return c.Signal(syscall.SIGSTOP)
}

// Resume lets a paused process go on.
func (c *Child) Resume() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = false
	return c.Signal(syscall.SIGCONT)
}

// Kill ends the process without any chance to clean up, paused or not, and
// waits until it is reaped.
func (c *Child) Kill() {
	// SIGKILL cannot fail on a process of ours that still runs.
	_ = c.Signal(syscall.SIGKILL)
	<-c.done
}

// Stop sends the polite signal and waits for the end; when giveUp is closed
// first, the process is killed and Stop returns false. A paused process is
// resumed, for it could not hear the signal.
func (c *Child) Stop(polite syscall.Signal, giveUp <-chan struct{}) bool {
	if err := c.Signal(polite); err != nil {
		c.Kill()
		return false
	}
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if paused {
		if err := c.Resume(); err != nil {
			c.Kill()
			return false
		}
	}
	select {
	case <-c.done:
		return true
	case <-giveUp:
		c.Kill()
		return false
	}
}
