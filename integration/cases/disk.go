package cases

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// smallDisk is a file system of its own for what the gateway keeps, so that it
// can be filled without filling the machine's.
type smallDisk struct {
	dir string
}

// smallDiskSize is large enough for every legal delivery of a case.
const smallDiskSize = "64m"

func (w *world) mountSmallDisk() error {
	if !anyStep(w.c.Steps, func(s *Step) bool { return s.Op == "disk_full" || s.Op == "disk_free" }) {
		return nil
	}
	dir := w.gateway.spoolDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("case", dir, "tmpfs", 0, "size="+smallDiskSize); err != nil {
		return fmt.Errorf("disk_full needs the right to mount a small file system: %w", err)
	}
	w.disk = &smallDisk{dir: dir}
	return nil
}

func (w *world) unmountSmallDisk() {
	if w.disk != nil {
		_ = unix.Unmount(w.disk.dir, unix.MNT_DETACH) // the directory goes away next; a failure shows there
	}
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, ".ballast") }

// fill writes until nothing more fits.
func (d *smallDisk) fill() error {
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for size := len(block); size > 0; {
		if _, err := f.Write(block[:size]); err != nil {
			size /= 2
		}
	}
	return nil
}

func (d *smallDisk) free() error { return os.Remove(d.ballast()) }
