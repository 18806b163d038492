//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package spool

import (
	"errors"
	"os"
)

// lockFile refuses: without a lock two processes could write one spool.
func lockFile(*os.File) error {
	return errors.New("file locks are not supported on this platform")
}
