//go:build unix && !linux

package child

import "syscall"

// Only Linux tells a process of its parent's death.
func signalWhenOrphaned(*syscall.SysProcAttr, syscall.Signal) {}
