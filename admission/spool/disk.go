package spool

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Disk is every file operation the spool makes, so that a test can fail each
// in turn or cut the power between two. Names are full paths. Implementations
// are safe for concurrent use.
//
// Assumed of a real file system: a successful File.Sync makes the file's
// bytes and length durable; a successful SyncDir makes creations, renames and
// removals in that directory durable; a write that was not synced may be
// present, absent or torn at any byte after a power cut; a failed Sync may
// have lost what it was to make durable and is never repeated.
type Disk interface {
	MkdirAll(dir string) error           // 0700
	Create(name string) (File, error)    // 0600, fails when it exists
	Open(name string) (File, error)      // for reading
	Rename(from, to string) error        // replaces
	Remove(name string) error            //
	List(dir string) ([]string, error)   // names only, sorted
	SyncFile(name string) error          // makes durable what an earlier process wrote
	SyncDir(dir string) error            //
	Lock(name string) (io.Closer, error) // exclusive, gone with the process; errLocked
}

// File is one open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Size() (int64, error)
}

// errLocked is what Disk.Lock returns when somebody else holds the lock.
var errLocked = errors.New("locked")

// realDisk is the operating system's file system.
type realDisk struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (realDisk) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

func (realDisk) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (realDisk) Open(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (realDisk) Rename(from, to string) error { return os.Rename(from, to) }
func (realDisk) Remove(name string) error     { return os.Remove(name) }

func (realDisk) List(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	names := make([]string, 0, len(list))
	for _, e := range list {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func (realDisk) SyncFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (realDisk) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there; the file system journals them
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

func (realDisk) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readSmall reads a whole file of at most max bytes.
func readSmall(d Disk, name string, max int64) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > max {
		return nil, ErrTooLarge
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(data)) {
		return nil, err
	}
	return data, nil
}

// writeSmall makes name hold data, durably and all or nothing.
func writeSmall(d Disk, name string, data []byte) error {
	next := name + ".new"
	if err := d.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("remove", err)
	}
	f, err := d.Create(next)
	if err != nil {
		return diskError("create", err)
	}
	if _, err = f.WriteAt(data, 0); err != nil {
		err = diskError("write", err)
	} else if err = f.Sync(); err != nil {
		err = diskError("sync", err)
	}
	if e := f.Close(); err == nil && e != nil {
		err = diskError("close", e)
	}
	if err != nil {
		_ = d.Remove(next)
		return err
	}
	if err := d.Rename(next, name); err != nil {
		return diskError("rename", err)
	}
	return diskError("sync directory", d.SyncDir(filepath.Dir(name)))
}
