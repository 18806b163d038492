package spool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowDisk takes a millisecond for each sync and counts them.
type slowDisk struct {
	Disk
	syncs *atomic.Int64
}

type slowFile struct {
	File
	syncs *atomic.Int64
}

func (d slowDisk) Create(name string) (File, error) {
	f, err := d.Disk.Create(name)
	return slowFile{f, d.syncs}, err
}

func (f slowFile) Sync() error {
	f.syncs.Add(1)
	time.Sleep(time.Millisecond)
	return f.File.Sync()
}

// TestWritersShareASync: four senders, each of which sends its next delivery
// when the last one is durable, share each sync. Without the writer's moment of
// patience they take turns in pairs: two deliveries a sync.
func TestWritersShareASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const senders, each = 4, 100
		var syncs atomic.Int64
		c := memConfig(newMemDisk())
		c.Disk = slowDisk{c.Disk, &syncs}
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range senders {
			wg.Go(func() {
				for i := range each {
					if _, err := s.Keep(context.Background(), "/hook", testDelivery(fmt.Sprint(w), i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		shared := float64(senders*each) / float64(syncs.Load())
		t.Logf("%.2f deliveries a sync", shared)
		if shared < 2.5 {
			t.Errorf("%.2f deliveries a sync, want most of %d", shared, senders)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
