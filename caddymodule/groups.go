package caddymodule

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-admission/gateway/admission/identity"
)

// groupsEvery is how often the networks that carried a proof are written, when
// there is a new one. A process that is killed loses so much at most.
const groupsEvery = time.Minute

// groupKeeper writes, for one running configuration, which networks carried a
// proof lately: networks and times, no credential. One file per pool in Caddy's
// data directory, mode 0600, replaced as a whole.
//
// start and stop are called once each; written belongs to run until it ends,
// then to stop.
type groupKeeper struct {
	logger  *zap.Logger
	dir     string
	stores  map[string]*identity.Store
	written map[string]uint64 // GroupChanges when it was last written
	done    chan struct{}
	over    sync.WaitGroup
}

func newGroupKeeper(logger *zap.Logger) *groupKeeper {
	return &groupKeeper{
		logger: logger, dir: filepath.Join(caddy.AppDataDir(), "admission"),
		stores: map[string]*identity.Store{}, written: map[string]uint64{}, done: make(chan struct{}),
	}
}

func (k *groupKeeper) path(pool string) string { return filepath.Join(k.dir, pool+".groups") }

// add keeps the groups of a pool. A pool that remembers nothing yet, after a
// start of the process, gets what the file holds; a file that is missing or
// damaged costs the turn in the queue, no more.
func (k *groupKeeper) add(pool string, s *identity.Store) {
	k.stores[pool] = s
	k.written[pool] = s.GroupChanges()
	if s.Snapshot().Remembered.Held > 0 {
		return
	}
	b, err := os.ReadFile(k.path(pool))
	if err == nil {
		err = s.ImportGroups(b, time.Now())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.logger.Warn("the networks that carried a proof are not known: their sign-ins wait like any other", zap.String("pool", pool), zap.Error(err))
	}
}

// start writes now and then until stop.
func (k *groupKeeper) start() {
	k.over.Go(func() {
		t := time.NewTicker(groupsEvery)
		defer t.Stop()
		for {
			select {
			case <-k.done:
				return
			case <-t.C:
				k.write()
			}
		}
	})
}

// stop writes what is new and ends the keeper.
func (k *groupKeeper) stop() {
	close(k.done)
	k.over.Wait()
	k.write()
}

func (k *groupKeeper) write() {
	for pool, s := range k.stores {
		changes := s.GroupChanges()
		if changes == k.written[pool] {
			continue
		}
		if err := k.replace(k.path(pool), s.ExportGroups(time.Now())); err != nil {
			k.logger.Warn("the networks that carried a proof could not be written", zap.String("pool", pool), zap.Error(err))
			continue
		}
		k.written[pool] = changes
	}
}

// replace writes a file that only the owner can read, whole or not at all.
func (k *groupKeeper) replace(path string, b []byte) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(k.dir, ".groups-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", filepath.Base(path), err), os.Remove(f.Name()))
	}
	return nil
}
