package flood

import (
	"context"
	"os/exec"
	"time"
)

// command is exec.CommandContext for a command with children, as git is: they
// all end with ctx.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	OwnGroup(cmd)
	cmd.WaitDelay = 2 * time.Second
	return cmd
}
