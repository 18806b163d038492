//go:build !linux

package caddymodule

import "syscall"

// acknowledged is not known on this system.
func acknowledged(syscall.RawConn) (int64, bool) { return 0, false }
