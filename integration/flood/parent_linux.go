package flood

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends a command when the thread that started it ends.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
