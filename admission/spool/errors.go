package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// Bound names one limit of the spool. The set is closed.
type Bound string

// The bounds a delivery can meet.
const (
	BoundBytes      Bound = "bytes"      // MaxBytes of everything kept
	BoundCount      Bound = "count"      // MaxCount of everything kept
	BoundRepository Bound = "repository" // one repository's share of either
	BoundPending    Bound = "pending"    // bytes waiting for a slow disk
)

// FullError says that a delivery was refused because a bound is reached.
// Nothing was written. The sender is to be told 503.
type FullError struct {
	Bound Bound
	Limit int64 // bytes, or deliveries of a count or of a repository's share of one
}

func (e *FullError) Error() string {
	return fmt.Sprintf("spool: full: %s bound of %d reached", e.Bound, e.Limit)
}

// DiskError says that the file system refused an operation. Op is from a
// closed set (create, write, sync, sync directory, read, …); the file name is
// left out because it says nothing to a sender.
type DiskError struct {
	Op  string
	Err error
}

func (e *DiskError) Error() string { return fmt.Sprintf("spool: %s: %v", e.Op, plain(e.Err)) }
func (e *DiskError) Unwrap() error { return e.Err }

// Full reports whether the disk has no room (or the quota none).
func (e *DiskError) Full() bool {
	return errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT)
}

// Disk reports whether the disk is at fault (full, read-only, broken) rather
// than a name or a permission.
func (e *DiskError) Disk() bool {
	return e.Full() || errors.Is(e.Err, syscall.EROFS) || errors.Is(e.Err, syscall.EIO)
}

// plain drops the path of a path error.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func diskError(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*DiskError](err); ok {
		return err
	}
	return &DiskError{Op: op, Err: err}
}

// LockedError says that another process, or another configuration of this
// one, has the directory open.
type LockedError struct{ Dir string }

func (e *LockedError) Error() string {
	return fmt.Sprintf("spool: %s is in use by another process or another configuration; "+
		"each gateway needs a spool directory of its own", e.Dir)
}

// FormatError says that the directory was written in a format this program
// does not know. Nothing in it was changed.
type FormatError struct {
	Dir         string
	Found, Know int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("spool: %s has format %d, this program knows format %d; nothing was changed",
		e.Dir, e.Found, e.Know)
}

// Errors without detail.
var (
	ErrClosed      = errors.New("spool: closed")
	ErrExpired     = errors.New("spool: the delivery's signed time would be over before a replay")
	ErrTooLarge    = errors.New("spool: the delivery is larger than the spool accepts")
	ErrNoHook      = errors.New("spool: no such hook is configured")
	ErrBusy        = errors.New("spool: no attempt could be made in time")
	ErrUnreachable = errors.New("spool: the receiver cannot be reached or did not answer")
	ErrCorrupt     = errors.New("spool: the kept delivery does not match its checksum")
	ErrNotFound    = errors.New("spool: no such delivery")
	ErrNoKey       = errors.New("spool: the key that sealed this delivery's credentials is gone")
)

// Reason names why err refused a delivery, for metrics and the contract
// table. The set is closed: spool_full, disk, expired, too_large, closed,
// gone, busy, upstream_failed, other; "" for nil.
func Reason(err error) string {
	switch {
	case err == nil:
		return ""
	case is[*FullError](err):
		return "spool_full"
	case is[*DiskError](err):
		return "disk"
	case errors.Is(err, ErrExpired):
		return "expired"
	case errors.Is(err, ErrTooLarge):
		return "too_large"
	case errors.Is(err, ErrClosed), errors.Is(err, ErrNoHook):
		return "closed"
	case errors.Is(err, ErrBusy), errors.Is(err, context.DeadlineExceeded):
		return "busy"
	case errors.Is(err, ErrUnreachable):
		return "upstream_failed"
	case errors.Is(err, context.Canceled):
		return "gone"
	}
	return "other"
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
