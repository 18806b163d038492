package gate

import "github.com/caddy-admission/gateway/admission"

// servedMax bounds the callers and groups whose last turn is remembered.
const servedMax = 4096

// servedTable remembers when somebody was served; the oldest turn is
// forgotten first, which ranks its owner as if never served.
type servedTable struct {
	at    map[admission.Key]lastTurn
	order []servedTurn // oldest first
}

type lastTurn struct {
	turn  uint64 // of the last service that counted, from 1
	since uint64 // services since then, fewer than the owner has in one turn
}

type servedTurn struct {
	who  admission.Key
	turn uint64
}

// served counts a service of k, which has n of them in a turn.
func (t *servedTable) served(k admission.Key, turn, n uint64) {
	if t.at == nil {
		t.at = map[admission.Key]lastTurn{}
	}
	last, again := t.at[k]
	if last.since++; last.since >= n {
		last = lastTurn{turn: turn}
	} else if again {
		t.at[k] = last
		return
	}
	t.at[k] = last
	t.order = append(t.order, servedTurn{k, last.turn})
	if len(t.order) <= servedMax {
		return
	}
	if old := t.order[0]; t.at[old.who].turn == old.turn {
		delete(t.at, old.who)
	}
	t.order = t.order[1:]
}
