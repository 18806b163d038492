package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// memDisk is a disk in memory that knows what was synced. It can fail any one
// operation and can lose its power at any one.
type memDisk struct {
	mu     sync.Mutex
	names  map[string]*memFile // as programs see them
	stable map[string]*memFile // as they are after a power cut
	loose  map[string][]dirOp  // not yet synced, by directory
	locks  map[string]bool

	ops    int
	log    []string
	failAt int    // this operation fails; 0 = none
	fault  error  // how: ENOSPC on a write writes half of it, EIO on a sync loses what it was to save
	cutAt  int    // from this operation on everything fails and nothing changes; 0 = never
	full   error  // every write, create and rename fails with it
	failOp string // the next operation of this kind fails with fault
}

type memFile struct {
	data   []byte
	stable []byte
	loose  []fileOp
}

// fileOp is a write, or with nil data a truncation.
type fileOp struct {
	off  int64
	data []byte
}

// dirOp makes a name stand for a file; nil removes it.
type dirOp struct {
	name string
	file *memFile
}

var errPower = errors.New("no power")

func newMemDisk() *memDisk {
	return &memDisk{names: map[string]*memFile{}, stable: map[string]*memFile{},
		loose: map[string][]dirOp{}, locks: map[string]bool{}}
}

// step counts an operation and says how it ends.
func (d *memDisk) step(op, name string) error {
	d.ops++
	d.log = append(d.log, op+" "+filepath.Base(name))
	switch {
	case d.cutAt != 0 && d.ops >= d.cutAt:
		return errPower
	case d.failAt == d.ops:
		return &fs.PathError{Op: op, Path: name, Err: d.fault}
	case d.failOp == op:
		d.failOp = ""
		return &fs.PathError{Op: op, Path: name, Err: d.fault}
	case d.full != nil && (op == "write" || op == "create" || op == "rename"):
		return &fs.PathError{Op: op, Path: name, Err: d.full}
	}
	return nil
}

// fill makes every write, create and rename fail with err; nil ends that.
func (d *memDisk) fill(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = err
}

// failNext makes the next operation of a kind fail.
func (d *memDisk) failNext(op string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failOp, d.fault = op, err
}

// crash returns the disk as the next start finds it: of what was not synced,
// any part may be there; with a nil r nothing is.
func (d *memDisk) crash(r *rand.Rand) *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := newMemDisk()
	for name, f := range d.stable {
		next.names[name] = f
	}
	for _, ops := range d.loose {
		for _, op := range ops {
			if r != nil && r.IntN(2) == 0 {
				apply(next.names, op)
			}
		}
	}
	copies := map[*memFile]*memFile{}
	for name, f := range next.names {
		if copies[f] == nil {
			c := f.survive(r)
			copies[f] = &memFile{data: c, stable: slices.Clone(c)}
		}
		next.names[name] = copies[f]
		next.stable[name] = copies[f]
	}
	return next
}

// killed returns the disk as the next process finds it after this one was
// killed: everything written is there, and still not synced.
func (d *memDisk) killed() *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := newMemDisk()
	next.names, next.stable, next.loose = maps.Clone(d.names), maps.Clone(d.stable), maps.Clone(d.loose)
	return next
}

func (f *memFile) survive(r *rand.Rand) []byte {
	data := slices.Clone(f.stable)
	if r == nil {
		return data
	}
	for _, op := range f.loose {
		switch r.IntN(4) {
		case 0: // lost
		case 1: // torn
			if len(op.data) > 0 {
				n := r.IntN(len(op.data) + 1)
				data = put(data, fileOp{op.off, op.data[:n]})
			}
		case 2: // only its end
			if len(op.data) > 0 {
				n := r.IntN(len(op.data))
				data = put(data, fileOp{op.off + int64(n), op.data[n:]})
			}
		default:
			data = put(data, op)
		}
	}
	return data
}

func put(data []byte, op fileOp) []byte {
	if op.data == nil {
		return data[:min(op.off, int64(len(data)))]
	}
	if end := op.off + int64(len(op.data)); end > int64(len(data)) {
		data = append(data, make([]byte, end-int64(len(data)))...)
	}
	copy(data[op.off:], op.data)
	return data
}

func apply(names map[string]*memFile, op dirOp) {
	if op.file == nil {
		delete(names, op.name)
	} else {
		names[op.name] = op.file
	}
}

func (d *memDisk) setName(name string, f *memFile) {
	op := dirOp{name, f}
	apply(d.names, op)
	dir := filepath.Dir(name)
	d.loose[dir] = append(d.loose[dir], op)
}

func (d *memDisk) MkdirAll(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.step("mkdir", dir)
}

func (d *memDisk) Create(name string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("create", name); err != nil {
		return nil, err
	}
	if d.names[name] != nil {
		return nil, fs.ErrExist
	}
	f := &memFile{}
	d.setName(name, f)
	return &memHandle{d, f, name}, nil
}

func (d *memDisk) Open(name string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("open", name); err != nil {
		return nil, err
	}
	f := d.names[name]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return &memHandle{d, f, name}, nil
}

func (d *memDisk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("rename", from); err != nil {
		return err
	}
	f := d.names[from]
	if f == nil {
		return fs.ErrNotExist
	}
	d.setName(to, f)
	d.setName(from, nil)
	return nil
}

func (d *memDisk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("remove", name); err != nil {
		return err
	}
	if d.names[name] == nil {
		return fs.ErrNotExist
	}
	d.setName(name, nil)
	return nil
}

func (d *memDisk) List(dir string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("list", dir); err != nil {
		return nil, err
	}
	var list []string
	for name := range d.names {
		if filepath.Dir(name) == dir {
			list = append(list, filepath.Base(name))
		}
	}
	slices.Sort(list)
	return list, nil
}

func (d *memDisk) SyncFile(name string) error {
	f, err := d.Open(name)
	if err != nil {
		return err
	}
	return f.Sync()
}

func (d *memDisk) SyncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("sync directory", dir); err != nil {
		return err
	}
	for _, op := range d.loose[dir] {
		apply(d.stable, op)
	}
	delete(d.loose, dir)
	return nil
}

func (d *memDisk) Lock(name string) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("lock", name); err != nil {
		return nil, err
	}
	if d.locks[name] {
		return nil, errLocked
	}
	d.locks[name] = true
	return memLock{d, name}, nil
}

type memLock struct {
	d    *memDisk
	name string
}

func (l memLock) Close() error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	delete(l.d.locks, l.name)
	return nil
}

type memHandle struct {
	d    *memDisk
	f    *memFile
	name string
}

func (h *memHandle) ReadAt(b []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.step("read", h.name); err != nil {
		return 0, err
	}
	if off >= int64(len(h.f.data)) {
		return 0, io.EOF
	}
	n := copy(b, h.f.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *memHandle) WriteAt(b []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	err := h.d.step("write", h.name)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		return 0, err
	}
	if err != nil {
		b = b[:len(b)/2] // a short write
	}
	op := fileOp{off, slices.Clone(b)}
	h.f.data = put(h.f.data, op)
	h.f.loose = append(h.f.loose, op)
	return len(b), err
}

func (h *memHandle) Truncate(size int64) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.step("truncate", h.name); err != nil {
		return err
	}
	op := fileOp{off: size}
	h.f.data = put(h.f.data, op)
	h.f.loose = append(h.f.loose, op)
	return nil
}

func (h *memHandle) Sync() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.step("sync", h.name); err != nil {
		if !errors.Is(err, errPower) {
			h.f.loose = nil // the kernel gave up on these pages
		}
		return err
	}
	for _, op := range h.f.loose {
		h.f.stable = put(h.f.stable, op)
	}
	h.f.loose = nil
	return nil
}

func (h *memHandle) Size() (int64, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.step("stat", h.name); err != nil {
		return 0, err
	}
	return int64(len(h.f.data)), nil
}

func (h *memHandle) Close() error { return nil }

// file returns the bytes of the only or the nth log file for damaging them.
func (d *memDisk) file(suffix string, n int) *memFile {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for name := range d.names {
		if filepath.Ext(name) == suffix {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if n >= len(names) {
		panic(fmt.Sprintf("only %d files", len(names)))
	}
	return d.names[names[n]]
}
