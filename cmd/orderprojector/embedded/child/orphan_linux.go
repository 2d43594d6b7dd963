package child

import "syscall"

func signalWhenOrphaned(attr *syscall.SysProcAttr, s syscall.Signal) { attr.Pdeathsig = s }
