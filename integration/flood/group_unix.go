//go:build unix

package flood

import (
	"os/exec"
	"syscall"
)

// OwnGroup gives a command that has not started a process group, and lets the
// end of its context end the whole group.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
