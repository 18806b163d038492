package spool

import "testing"

// FuzzLogFile reads any bytes as the only log file of a spool: no panic, and
// every delivery that is found can be read or is known to be damaged.
func FuzzLogFile(f *testing.F) {
	whole := fixedLog()
	f.Add(whole)
	f.Add(whole[:len(whole)-7])
	f.Add(whole[segmentHeadSize:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		disk := newMemDisk()
		disk.names[segmentName("/spool", 1)] = &memFile{data: data}
		r, err := OpenReader("/spool", disk)
		if err != nil {
			if !is[*FormatError](err) {
				t.Fatal(err)
			}
			return
		}
		for _, it := range r.List(Filter{}) {
			if _, err := r.Show(it.ID, true); err != nil && it.Dead != string(DeadCorrupt) {
				t.Fatal(err)
			}
		}
	})
}

// fixedLog is a log file with three deliveries, one of them done and one
// noted, that is the same in every process.
func fixedLog() []byte {
	h := segmentHead{version: formatVersion, number: 1, next: 1, salt: salt{1, 2, 3}}
	data := h.encode()
	put := func(kind recordKind, seq uint64, facts, body string) {
		r := newRecordHead(kind, seq, []byte(facts), []byte(body))
		data = append(append(append(data, r.encode(&h.salt)...), facts...), body...)
	}
	for seq := range uint64(3) {
		put(recordKeep, seq+1, `{"hook":"/h","id":"x","repository":"a","digest":"AA==","received":1,"header":{"A":["b"]}}`, "body")
	}
	put(recordDone, 2, "", "")
	put(recordNote, 3, `{"attempts":2,"dead":"refused","dead_at":5}`, "")
	return data
}

// FuzzRecordHead: what decodes encodes to the same bytes.
func FuzzRecordHead(f *testing.F) {
	h := newRecordHead(recordKeep, 7, []byte("facts"), []byte("body"))
	f.Add(h.encode(&salt{}))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, ok := decodeRecordHead(data, &salt{})
		if !ok {
			return
		}
		again, ok := decodeRecordHead(h.encode(&salt{}), &salt{})
		if !ok || again != h {
			t.Fatalf("%+v %+v", h, again)
		}
	})
}
